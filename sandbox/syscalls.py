"""System call numbers of the two machine types, for those calls that the filter names, and the newest number that it knows.

Boundary: pure data. Not here: what is refused and how (seccomp.py).
Rules: numbers are the kernel's own (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h); None where a machine type has no such call. Before ``NEWEST`` is
raised, every call up to it is looked at: what reaches namespaces, mounts or the kernel's keys goes into seccomp.py's tables. tests/sandbox compares with libseccomp's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ARCHES: Final[Mapping[str, int]] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's AUDIT_ARCH constant of each machine type."""
NEWEST: Final = 469
"""file_setattr, Linux 6.17; numbers from 424 on are the same on every machine type."""
NUMBERS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "request_key": (249, 218),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "iopl": (172, None),
    "ioperm": (173, None),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "lookup_dcookie": (212, 18),
    "uselib": (134, None),
    "modify_ldt": (154, None),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "memfd_secret": (447, 447),
    "lsm_set_self_attr": (460, 460),
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "openat2": (437, 437),
    "open_tree_attr": (467, 467),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "file_setattr": (469, 469),
    "clone": (56, 220),
    "ioctl": (16, 29),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "open": (2, None),
    "openat": (257, 56),
    "creat": (85, None),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "personality": (135, 92),
}
"""By name: the number on x86_64 and on aarch64."""


def number_of(name: str, machine: str) -> int | None:
    """Return a call's number on a machine type, or None where it has no such call."""
    return NUMBERS[name][list(ARCHES).index(machine)]
