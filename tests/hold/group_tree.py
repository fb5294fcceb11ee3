"""A cgroup v2 file system in memory: stands in for the kernel's behind the port of sandbox/group.py."""

from __future__ import annotations

import errno

TOP = "/sys/fs/cgroup"
SWAPS = "Filename Type Size Used Priority\n"


class FakeTree:
    """A cgroup v2 file system in memory: controllers come from above, a group has processes or groups, values are read back as the kernel keeps them."""

    def __init__(self, *controllers: str, swap: bool = True) -> None:
        self.controllers = list(controllers)
        self.on: dict[str, list[str]] = {TOP: []}
        self.pids: dict[str, list[int]] = {TOP: []}
        self.values: dict[str, str] = {}
        self.unwritable: set[str] = set()
        self.rounded: dict[str, str] = {}
        self.swap = swap
        self.killed: list[str] = []

    def _of(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rpartition("/")
        if folder not in self.pids:
            raise FileNotFoundError(errno.ENOENT, "no such group", path)
        return folder, name

    def _has(self, folder: str, name: str) -> bool:
        first = name.partition(".")[0]
        return first == "cgroup" or (first in self._given(folder) and (self.swap or "swap" not in name))

    def _given(self, path: str) -> list[str]:
        return self.controllers if path == TOP else self.on[path.rpartition("/")[0]]

    def make(self, path: str) -> None:
        self._of(path)
        if path not in self.pids:
            self.pids[path], self.on[path] = [], []

    def keep(self, path: str, names: tuple[str, ...]) -> None:
        assert path in self.pids
        assert names

    def read(self, path: str) -> str:
        if path == "/proc/swaps":
            return SWAPS
        folder, name = self._of(path)
        if not self._has(folder, name) or (name == "cgroup.type" and folder == TOP):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        made = {
            "cgroup.controllers": " ".join(self._given(folder)),
            "cgroup.subtree_control": " ".join(self.on[folder]),
            "cgroup.procs": "\n".join(map(str, self.pids[folder])),
            "cgroup.events": f"populated {int(bool(self.pids[folder]))}\nfrozen 0\n",
            "cgroup.type": "domain",
        }
        return made.get(name, self.values.get(path, "max"))

    def write(self, path: str, text: str) -> None:
        folder, name = self._of(path)
        if path in self.unwritable:
            raise PermissionError(errno.EACCES, "refused", path)
        if name == "cgroup.subtree_control":
            if self.pids[folder] and folder != TOP:
                raise OSError(errno.EBUSY, "it has processes", path)
            self.on[folder].append(text.removeprefix("+"))
        elif name == "cgroup.procs":
            for pids in self.pids.values():
                if int(text) in pids:
                    pids.remove(int(text))
            self.pids[folder].append(int(text))
        elif name == "cgroup.kill":
            self.killed.append(folder)
            self.pids[folder].clear()
        elif not self._has(folder, name):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        else:
            self.values[path] = self.rounded.get(name, text)

    def remove(self, path: str) -> None:
        if path not in self.pids:
            raise FileNotFoundError(errno.ENOENT, "no such group", path)
        if self.pids[path] or any(other.startswith(f"{path}/") for other in self.pids):
            raise OSError(errno.EBUSY, "it is in use", path)
        del self.pids[path], self.on[path]
