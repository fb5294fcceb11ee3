"""Probes from the host's side: hostile trees, hungry and endless programs (facts/sandbox.md §2).

Boundary: starts sandboxes. Not here: the runner's kill (lifetime.py), gate, collector and skill tree (runner/doctor/probes). Rules: nothing is left behind.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from sandbox import procfs
from sandbox.check import check_spec
from sandbox.doctor import check_bwrap_mode
from sandbox.limits import MIB, Limits
from sandbox.probes.table import Seen
from sandbox.probes.trying import Site, attempt, probe, python, run, shell, spec_of, works
from sandbox.process import Supervisor, supervise
from sandbox.running import start
from sandbox.spec import Directory, File, Mount, Proc, RoBind, Symlink
from sandbox.view import HOME, TMP, WORKSPACE


@probe(6, "Mount below a link that an agent left", "refused", "checked-description", {"mount": ("SpecInvalid",), "made": ("=False",)})  # fmt: skip
def mount_below(site: Site) -> Seen:
    """A mount point below a tree that came from elsewhere is refused before bwrap sees it."""
    with supervise(site.host, runtime_dir=site.runtime_dir) as supervisor:
        tree, outside = supervisor.staging / "tree", supervisor.staging / "outside"
        tree.mkdir()
        outside.mkdir()
        (tree / "evil").symlink_to(f"/oldroot{outside}")

        def mounted(target: str) -> object:
            spec = spec_of("/usr/bin/true", binds=(RoBind(source="@tree", target="/opt/tree"),))
            spec = spec.model_copy(update={"mounts": (*spec.mounts, Directory(target=target))})
            run(site, spec, sources={"tree": tree})
            return "mounted"

        return Seen(
            {"mount": attempt(lambda: mounted("/opt/tree/evil/x")), "made": f"={(outside / 'x').exists()}"},
            {"elsewhere": attempt(lambda: mounted("/opt/other"))},
        )


@probe(7, "A directory replaced by a link", "refused", "handles", {"link": ("ENOTDIR", "ELOOP"), "host directory": ("OSError",)})  # fmt: skip
def replaced(site: Site) -> Seen:
    """A handle is opened without following, and only of the sandbox's own tmpfs."""
    with supervise(site.host, runtime_dir=site.runtime_dir) as supervisor:
        link, plain = supervisor.staging / "link", supervisor.staging / "plain"
        plain.mkdir()
        link.symlink_to(plain)

        def opened(path: Path) -> str:
            os.close(procfs.open_handle(os.getpid(), os.fsencode(path)))
            return "opened"

        _, _, found = shell(site, "echo x >x", look=lambda handle: len(os.listdir(handle)))
        return Seen(
            {"link": attempt(lambda: opened(link)), "host directory": attempt(lambda: opened(plain))},
            {"the workspace": f"={found}"},
        )


@probe(8, "A set-user-id bubblewrap", "refused", "doctor", {"set-user-id": ("=failed: CVE-2026-41163",)})
def set_user_id(site: Site) -> Seen:
    """It is found and named, and no run starts with it."""
    with supervise(site.host, runtime_dir=site.runtime_dir) as supervisor:
        copy = supervisor.staging / "bwrap"
        shutil.copyfile(site.host.bwrap, copy)
        copy.chmod(0o4755)
        check = check_bwrap_mode(copy)
        named = "CVE-2026-41163" if "CVE-2026-41163" in check.cause else check.cause
        return Seen(
            {"set-user-id": f"={check.status}: {named}"},
            {"this one": attempt(lambda: fine(check_bwrap_mode(site.host.bwrap).status))},
        )


def fine(status: str) -> str:
    """Return a status that is no failure. Raises OSError."""
    if status == "failed":
        raise OSError(errno.EINVAL, status)
    return status


@probe(
    16,
    "Signal everybody",
    "held",
    "own-session",
    {"kill -TERM 0": ("=dead",), "kill -KILL 0": ("=dead",), "kill -9 -1": ("=dead",)},
    "process-namespace",
)
def signal_all(site: Site) -> Seen:
    """The program and its like end; whoever started it goes on."""
    found = {
        f"kill {words}": "=dead" if shell(site, f"kill {words}; sleep 1")[0].dead else "=alive"
        for words in ("-TERM 0", "-KILL 0", "-9 -1")
    }
    return Seen(found, works(site))


@probe(30, "Lock a bound file", "held", "staged-copies", {"lock of the source": ("=locked",)})
def lock(site: Site) -> Seen:
    """A lock inside is on a copy; the source can be locked outside at the same time."""
    with supervise(site.host, runtime_dir=site.runtime_dir) as supervisor:
        source, copy = supervisor.staging / "source", supervisor.staging / "copy"
        for path in (source, copy):
            path.write_text("x", encoding="ascii")
            path.chmod(0o644)
        code = "import fcntl, time; f = open('/opt/file'); fcntl.flock(f, fcntl.LOCK_EX); print('has', flush=True); time.sleep(20)"
        spec = spec_of("/usr/bin/python3", "-I", "-S", "-c", code, binds=(RoBind(source="@copy", target="/opt/file"),))
        said = threading.Event()
        with start(
            Supervisor(site.host, None), spec, on_stdout=lambda _: said.set(), sources={"copy": copy}
        ) as running:
            running.release()
            has = said.wait(15)

            def locked(path: Path) -> str:
                with path.open() as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return "locked"

            attempts = {"lock of the source": attempt(lambda: locked(source))}
            controls = {"it has its lock": "=yes" if has and attempt(lambda: locked(copy)) == "EAGAIN" else "no"}
        return Seen(attempts, controls)


@probe(31, "Use up inotify", "held", "run-uid", {"during": ("=made", "EMFILE"), "after": ("=made",)}, "lifetime")
def inotify(site: Site) -> Seen:
    """Root's own budget is untouched; an ordinary caller shares it with the sandbox and has it back when that ends (documented in SECURITY.md)."""
    libc = ctypes.CDLL(None, use_errno=True)

    def made() -> str:
        number = libc.inotify_init1(0o2000000)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        os.close(number)
        return "made"

    code = (
        "import ctypes, time\nl = ctypes.CDLL(None)\nn = 0\nwhile l.inotify_init1(0) >= 0: n += 1\n"
        "print(n, flush=True); time.sleep(20)"
    )
    heard = bytearray()
    said = threading.Event()

    def take(piece: bytes) -> None:
        heard.extend(piece)
        said.set()

    before = attempt(made)
    with start(Supervisor(site.host, None), python(code), on_stdout=take) as running:
        running.release()
        said.wait(20)
        during = attempt(made)
    count = int(heard or b"0")
    return Seen(
        {"during": during, "after": attempt(made)}, {"before": before, "it took some": f"={count}" if count else "none"}
    )


BOMBS = {
    "private": "x = []\nwhile True: x.append(b'x' * (4 << 20))",
    "memfd": "import os\nk = []\nwhile True:\n f = os.memfd_create('x'); k.append(f); os.write(f, b'x' * (4 << 20))",
    "empty files": "n = 0\nwhile True:\n open(f'/tmp/{n}', 'w').close(); n += 1",
}


@probe(47, "A memory bomb", "held", "watchdog", dict.fromkeys(BOMBS, ("=memory-limit",)), "cgroup")
def memory_bomb(site: Site) -> Seen:
    """The run ends, for that reason: private memory, memory files, and the kernel's own memory for millions of empty files."""
    limits = Limits(memory_bytes=96 * MIB)
    found = {name: f"={run(site, python(code, limits=limits))[0].reason}" for name, code in BOMBS.items()}
    return Seen(found, works(site))


ENDLESS_OUTPUT = {
    "lines": "yes",
    "one line": "exec python3 -I -S -c \"import sys\nwhile True: sys.stdout.write('x' * 65536)\"",
}
"""Shell programs that write more than any cap."""
ENDLESS = {
    "busy": "while :; do :; done",
    "idle": "sleep inf",
    "deaf": "trap '' TERM INT HUP; while :; do sleep 1; done",
}
"""Shell programs that end for nobody."""


@probe(50, "Endless output", "held", "output-caps", {"lines": ("=output-limit",), "one line": ("=output-limit",)})
def endless_output(site: Site) -> Seen:
    """More than the cap ends the run; the runner has kept no more than that."""
    return Seen({name: f"={shell(site, script)[0].reason}" for name, script in ENDLESS_OUTPUT.items()}, works(site))


@probe(51, "Busy, idle and deaf programs", "held", "wall-clock", dict.fromkeys(("busy", "idle", "deaf"), ("=timeout",)))
def endless(site: Site) -> Seen:
    """The wall clock ends them all."""
    return Seen(
        {name: f"={shell(site, script, wall_s=0.7)[0].reason}" for name, script in ENDLESS.items()}, works(site)
    )


@probe(73, "What an earlier run left", "absent", "sized-tmpfs", {"difference": ("=none",)})
def earlier_run(site: Site) -> Seen:
    """A second run finds what the first one found, and nothing of it."""
    look = f"find {HOME} {WORKSPACE} {TMP} /dev/shm | sort"
    leave = f"; for d in {HOME} {WORKSPACE} {TMP} /dev/shm; do echo left >$d/left; done; find {HOME} -name left"
    first, second = shell(site, look + leave)[1], shell(site, look)[1]
    left = f"{HOME}/left\n"
    return Seen(
        {"difference": "=none" if first.removesuffix(left) == second else f"={second}"},
        {"it left something": "=yes" if first.endswith(left) else "no"},
    )


WORDS = {"NUL": "x\0--bind", "newline": "x\ny", "option": "--bind"}
NAMED = [
    *WORDS,
    *(
        f"{word} as {place}"
        for word in ("NUL", "newline")
        for place in ("source", "file", "link", "mask", "directory", "variable")
    ),
]
NAMED += ["NUL as argument", "NUL as value", "option as program", "option as source", "3100 binds"]


@probe(77, "Paths that would be options", "refused", "checked-description", dict.fromkeys(NAMED, ("SpecInvalid",)))
def option_paths(_: Site) -> Seen:
    """No path, variable or argument reaches the argument file, or bwrap's own command line, that bwrap would read otherwise; and no more binds than it takes."""
    spec = spec_of("/usr/bin/true")

    def checked(*mounts: Mount, **changes: object) -> str:
        check_spec(spec.model_copy(update={"mounts": (*spec.mounts, *mounts), **changes}))
        return "taken"

    def tried(word: str) -> dict[str, Callable[[], str]]:
        text = WORDS[word]
        return {
            word: lambda: checked(Directory(target=text if word == "option" else f"/opt/{text}")),
            f"{word} as source": lambda: checked(
                RoBind(source=text if word == "option" else f"/usr/{text}", target="/opt/x")
            ),
            f"{word} as file": lambda: checked(File(target=f"/opt/{text}", content=b"", mode=0o444)),
            f"{word} as link": lambda: checked(Symlink(target="/opt/x", to=text)),
            f"{word} as mask": lambda: checked(
                *(),
                mounts=tuple(
                    mount.model_copy(update={"masks": (text,)}) if isinstance(mount, Proc) else mount
                    for mount in spec.mounts
                ),
            ),
            f"{word} as directory": lambda: checked(cwd=f"/workspace/{text}"),
            f"{word} as variable": lambda: checked(env={text: "x"}),
            f"{word} as value": lambda: checked(env={"X": text}),
            f"{word} as argument": lambda: checked(argv=("/usr/bin/true", text)),
            f"{word} as program": lambda: checked(argv=(text,)),
        }

    attempts = {name: act for word in WORDS for name, act in tried(word).items() if name in NAMED}
    attempts["3100 binds"] = lambda: checked(*(RoBind(source="/usr", target=f"/opt/{n}") for n in range(3100)))
    return Seen(
        {name: attempt(act) for name, act in attempts.items()},
        {
            "a plain path": attempt(lambda: checked(Directory(target="/opt/x"))),
            "a value like an option": attempt(
                lambda: checked(env={"X": "--bind"}, argv=("/usr/bin/true", "--bind", "a\nb"))
            ),
        },
    )
