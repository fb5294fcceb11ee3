"""What a program inside finds: the fixed view, and nothing of the host."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.process import Supervisor
from sandbox.running import start
from sandbox.spec import RoBind, SandboxSpec
from tests.run.leftovers import descendants_of, wait_until

if TYPE_CHECKING:
    from sandbox.process import Host
    from tests.sandbox.conftest import MakeSpec, Run


def test_user_host_name_and_places_are_the_fixed_ones(run: Run) -> None:
    """Inside is user 1000 on host eval, in /workspace, with the home, locale and umask that every machine gives."""
    seen = run("id -u; id -g; id -G; hostname; pwd; echo $HOME; umask; cat /etc/passwd | grep -c eval; ls -A /")
    words = seen.out.split()
    assert words[:7] == ["1000", "1000", "1000", "eval", "/workspace", "/home/eval", "0022"]
    assert set(words[8:]) == {"bin", "dev", "etc", "home", "lib", "lib64", "proc", "sbin", "tmp", "usr", "workspace"}
    assert seen.ended.exit_status == 0


def test_environment_is_what_the_description_says(run: Run) -> None:
    """Nothing of the runner's environment comes in."""
    os.environ["HERMEVAL_TEST_CANARY"] = "canary-value"
    try:
        seen = run("env | sort; echo --; cat /proc/*/environ | tr '\\0' '\\n' | grep -c canary")
    finally:
        del os.environ["HERMEVAL_TEST_CANARY"]
    own, count = seen.out.split("--\n")
    assert own.splitlines() == ["HOME=/home/eval", "LANG=C.UTF-8", "PATH=/usr/bin:/bin", "PWD=/workspace", "TZ=UTC"]
    assert count.strip() == "0"


def test_only_the_three_standard_descriptors_are_open(run: Run) -> None:
    """No descriptor leaks in: not the lifeline, not the hold, not a data file."""
    seen = run(
        "ls /proc/self/fd | sort -n | tr '\\n' ' '; readlink /proc/self/fd/* | grep -v -e socket -e pipe -e /proc; echo"
    )
    assert seen.out.split() == ["0", "1", "2", "3"]  # 3 is ls itself reading the directory


def first_process(supervisor: int) -> Path:
    """Return the directory of the sandbox's pid 1: of a supervisor's descendants the only one that is number 1 in a namespace below its own."""
    own = len(Path(f"/proc/{supervisor}/status").read_text().partition("NSpid:")[2].split("\n")[0].split())
    found = []
    for process in descendants_of(supervisor):
        numbers = Path(f"/proc/{process.pid}/status").read_text().partition("NSpid:")[2].split("\n")[0].split()
        if numbers[-1] == "1" and len(numbers) > own:
            found.append((len(numbers), process.pid))
    return Path(f"/proc/{max(found)[1]}")


def test_the_first_process_has_nothing_and_shows_nothing(host: Host, make_spec: MakeSpec) -> None:
    """Pid 1 has no environment and, beside the output that it hands on, bwrap's own eventfd; inside its directory is empty, that of any other process is not (control)."""
    os.environ["HERMEVAL_TEST_CANARY"] = "canary-value"
    output = bytearray()
    supervisor = Supervisor(host, None)
    try:
        with start(
            supervisor,
            make_spec("ls -A /proc/1 | wc -l; ls -A /proc/self | grep -c mem; echo >/proc/1/mem; echo end; sleep 60"),
            on_stdout=output.extend,
            wall_clock_s=60.0,
        ) as running:
            running.release()
            wait_until(lambda: b"end" in output)
            assert supervisor.pid is not None
            first = first_process(supervisor.pid)
            environment = (first / "environ").read_bytes()
            opened = [(first / "fd" / name).readlink() for name in os.listdir(first / "fd")]
            running.kill("done")
    finally:
        del os.environ["HERMEVAL_TEST_CANARY"]
    assert environment.strip(b"\0") == b""
    assert len(opened) <= 4
    words = output.split()
    assert bytes(words[0]) == b"0"
    assert bytes(words[-1]) == b"end"
    assert int(words[1]) >= 1


def test_no_host_path_shows_but_neutral_ones(run: Run, make_spec: MakeSpec, supervisor: Supervisor) -> None:
    """Neither command lines nor the mount table name the checkout, a home or a user; a staged tree shows its neutral path only."""
    seen = run("cat /proc/*/cmdline | tr '\\0' ' '; echo; echo --; cat /proc/self/mountinfo")
    lines, mounts = seen.out.split("--\n")
    assert "--ro-bind" not in lines
    assert "/usr" in mounts  # the control: the table is there
    sources = {line.split()[3] for line in mounts.splitlines()}
    checkout = str(Path(__file__).resolve().parents[2])
    assert not [source for source in sources if source.startswith((checkout, str(Path.home())))]
    assert "hermeval" in supervisor.staging.name
    assert os.environ.get("USER", "no-such-user") not in str(supervisor.staging)


def test_only_a_loopback_with_nothing_behind_it(run: Run) -> None:
    """There is one interface, no route, and no resolver."""
    seen = run(
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; wc -l </proc/net/route; cat /etc/resolv.conf;"
        "python3 -I -c \"import socket\ntry: socket.create_connection(('192.0.2.1', 443), 2)\nexcept OSError as e: print(e.errno)\n"
        "try: socket.getaddrinfo('example.invalid', 443)\nexcept OSError as e: print(e.errno)\""
    )
    assert seen.out.split() == ["lo", "1", "101", "-3"] or seen.out.split() == ["lo", "1", "101", "-2"]


def test_abstract_sockets_of_the_host_are_out_of_reach(run: Run) -> None:
    """A socket in the abstract name space can be reached from outside and not from inside."""
    name = b"\0hermeval-test-%d" % os.getpid()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen(1)
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(name)
        script = "python3 -I -c \"import socket\ntry: socket.socket(socket.AF_UNIX).connect('\\0hermeval-test-@pid@')\nexcept OSError as e: print(e.errno)\""
        seen = run(script.replace("@pid@", str(os.getpid())))
    assert seen.out.strip() == "111"


def test_proc_tells_nothing_of_the_host(run: Run) -> None:
    """The covered files read as empty regular files, /proc/sys cannot be written, and only the sandbox's processes are there."""
    seen = run(
        "for f in cmdline version keys key-users kallsyms modules sys/kernel/random/boot_id; do"
        " test -e /proc/$f && stat -c '%F' /proc/$f && wc -c </proc/$f; done;"
        "ls /proc | grep -c '^[0-9]';"
        "cat /proc/sys/kernel/core_pattern > /tmp/p; cat /tmp/p > /proc/sys/kernel/core_pattern"
    )
    words = seen.out.strip().splitlines()
    assert int(words.pop()) < 10
    assert set(words) == {"regular empty file", "0"}
    assert b"Read-only" in seen.ended.stderr or b"Permission denied" in seen.ended.stderr


def test_writable_places_are_sized_and_the_rest_is_read_only(run: Run) -> None:
    """Home, workspace, /tmp and /dev/shm take what they are sized for; the root, /dev and /etc take nothing."""
    seen = run(
        "for d in / /dev /etc /usr /opt /home /proc; do (echo x >$d/x) 2>/dev/null && echo wrote $d; done;"
        "for d in /home/eval /workspace /tmp /dev/shm; do echo x >$d/x && df -k --output=size $d | tail -1; done;"
        "head -c 80M /dev/zero >/dev/shm/big 2>/dev/null || echo full; test -w /dev/null && echo y >/dev/null && head -c 4 /dev/urandom | wc -c"
    )
    assert seen.out.split() == ["524288", "1048576", "524288", "65536", "full", "4"]


def test_seeded_files_are_ordinary_files_of_the_user(run: Run) -> None:
    """A seed in the home can be replaced by rename, as the CLI does; the files of /etc cannot be changed."""
    seen = run(
        "stat -c '%a %u' ~/.claude.json; cat ~/.claude.json; echo new >~/.n && mv ~/.n ~/.claude.json && cat ~/.claude.json;"
        "cat /etc/hosts; chmod 644 /etc/hosts; rm -f /etc/hosts",
        view={"home_files": {".claude.json": b"seed\n", ".deep/er/x": b""}, "local_names": ("api.example.invalid",)},
    )
    assert seen.out.splitlines() == ["600 1000", "seed", "new", "127.0.0.1 localhost api.example.invalid"]
    assert seen.ended.stderr.count(b"Read-only file system") == 2


def test_a_bound_tree_is_read_only(run: Run, supervisor: Supervisor) -> None:
    """A staged tree can be read and executed, and nothing in it written, renamed, re-moded or mounted over."""
    tree = supervisor.staging / "skills"
    (tree / "cf").mkdir(parents=True)
    for path in (tree, tree / "cf"):
        path.chmod(0o755)
    script = tree / "cf" / "run.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    bind = RoBind(source="@skills", target="/home/eval/.claude/skills")
    seen = run(
        "cd ~/.claude/skills; cf/run.sh; touch new; mv cf other; chmod 700 cf/run.sh; touch -d 2001-01-01 cf/run.sh; rm -rf cf; cf/run.sh;"
        "umount ~/.claude/skills; unshare -Urm true; touch ~/.claude/ok && echo home-ok",
        view={"binds": (bind,)},
        sources={"skills": tree},
    )
    assert seen.out.splitlines() == ["ran", "ran", "home-ok"]
    assert seen.ended.stderr.count(b"Read-only file system") >= 4
    assert b"unshare" in seen.ended.stderr
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == ["cf", "cf/run.sh"]


def test_limits_are_set_and_read_back(run: Run) -> None:
    """The rlimits hold inside, and the report has the kernel's own numbers."""
    seen = run("ulimit -n; ulimit -Hn; ulimit -u 2>/dev/null || ulimit -p; ulimit -f; ulimit -c")
    assert seen.out.split()[:3] == ["4096", "4096", "1024"]
    held = seen.ended.limits
    assert (held.processes, held.open_files, held.file_bytes, held.disk, held.memory) == (
        "rlimit",
        "rlimit",
        "rlimit",
        "tmpfs",
        "watchdog",
    )
    assert held.values == {
        "processes": 1024,
        "open_files": 4096,
        "file_bytes": 1 << 30,
        "core_bytes": 1,
        "memory_bytes": 4 << 30,
    }


def test_a_fork_bomb_is_bounded(run: Run) -> None:
    """Processes are counted in the sandbox's own user namespace, so a bomb meets its limit and the host's user does not."""
    from sandbox.limits import Limits

    script = (
        'python3 -I -c "import os, time\nn = 0\ntry:\n  while n < 2000:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n'
        "except BlockingIOError: print('stopped', n)\""
    )
    seen = run(script, view={"limits": Limits(processes=100)})
    word, count = seen.out.split()
    assert word == "stopped"
    assert 80 <= int(count) < 100


def test_no_terminal_and_a_session_of_its_own(run: Run) -> None:
    """There is no controlling terminal, stdin ends after the given bytes, and a signal to the own group hits nobody outside."""
    seen = run(
        "cat; (echo x >/dev/tty) 2>&1 | head -c 200; ps -o sid= -p $$ 2>/dev/null; trap '' TERM; kill -TERM 0; echo alive",
        stdin=b"given\n",
    )
    lines = seen.out.splitlines()
    assert lines[0] == "given"
    assert "No such device or address" in lines[1]
    assert lines[-1] == "alive"


def test_stdin_larger_than_a_pipe_is_fed_and_closed(run: Run) -> None:
    """A megabyte on stdin arrives whole and ends; one that nobody reads holds nothing up (case D14)."""
    content = bytes(range(256)) * 8192
    assert run("wc -c; cksum", stdin=content).out.split()[0] == str(len(content))
    assert run("exit 7", stdin=content).ended.exit_status == 7


def test_a_system_call_filter_is_loaded_where_one_is_given(run: Run) -> None:
    """The filter's bytes reach the kernel; without any the program runs unfiltered. One that forbids everything stops the start, and that is told."""
    allow = bytes.fromhex("060000000000ff7f")
    kill = bytes.fromhex("0600000000000080")
    script = "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status"
    assert run(script, view={"seccomp": allow}).out.split() == ["NoNewPrivs:", "1", "Seccomp:", "2"]
    assert run(script).out.split() == ["NoNewPrivs:", "1", "Seccomp:", "0"]
    forbidden = run(script, view={"seccomp": kill}).ended
    assert forbidden.exit_status not in (0, None) or forbidden.setup_error


def test_a_description_tells_all_but_contents(make_spec: MakeSpec) -> None:
    """The description tells every mount, the network and the limits, and neither contents nor values."""
    spec: SandboxSpec = make_spec(home_files={".claude.json": b"secret-content"}, port=443)
    words = spec.describe()
    for part in (
        "/home/eval",
        "/workspace",
        "127.0.0.1:443",
        "1024 processes",
        "user 1000",
        "filtered" if spec.seccomp else "all that the kernel allows",
    ):
        assert part in words
    assert "secret-content" not in words
    assert "C.UTF-8" not in words


def test_staging_is_private(supervisor: Supervisor) -> None:
    """No other user can enter a run's directory."""
    mode = supervisor.staging.stat().st_mode
    assert mode & 0o007 == 0
