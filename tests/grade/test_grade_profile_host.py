"""The profile host, with the real sandbox: what a profile may do, and that what it may not do costs its own attempt and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import GraderFault, ProfileUnknown
from runner.grade.profile_host import ProfileHost
from sandbox.process import Host, find_host

GOOD = """
from profiles._types import Check, Diagnostic

def validate(fixture):
    pass

def check_output(fixture, output, context):
    return [Check("said", "yes" in output, "The output must say yes")]
"""
HEAD = "from profiles._types import Check, Diagnostic\nFINE = [Check('fine', True, 'it is')]\ndef validate(fixture):\n    pass\n"


@pytest.fixture(scope="module")
def host() -> Host:
    """This host, with bubblewrap on it."""
    return find_host()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A profiles folder with one good profile."""
    (tmp_path / "good.py").write_text(GOOD)
    return tmp_path


def add(folder: Path, body: str, name: str = "evil") -> None:
    indented = "\n".join(f"    {line}" for line in body.strip().splitlines())
    (folder / f"{name}.py").write_text(f"{HEAD}def check_output(fixture, output, context):\n{indented}\n")


def asked(
    profiles: ProfileHost, attempt: str = "a", output: str = "yes", profile: str = "good", **context: object
) -> list[bool]:
    return [check.met for check in profiles.check(attempt, profile, {"id": "x"}, output, context).checks]


FAULTS = {
    "raises": ("raise ValueError('no such role')", "raised: ValueError: no such role (evil.py, line 6)"),
    "returns nothing": ("pass", "returned NoneType, not a list"),
    "returns a generator": ("return (check for check in FINE)", "returned generator, not a list"),
    "returns no check": ("return []", "returned no checks"),
    "returns a dict": ("return [{'id': 'x', 'met': True, 'reason': 'y'}]", "returned dict as item 0, not a Check"),
    "repeats an id": ("return FINE + FINE", "two results have the id 'fine'"),
    "says met in words": ("return [Check('x', 'true', 'y')]", "met is text, not a boolean"),
    "says met as a number": ("return [Check('x', 1, 'y')]", "met is a number, not a boolean"),
    "says no reason": ("return [Check('x', True, ' ')]", "reason is blank"),
    "has an odd id": ("return [Check('x y', True, 'z')]", "'x y' is no id"),
    "loops": ("while True: pass", "too slow"),
    "sleeps": ("import time\ntime.sleep(60)", "too slow"),
    "ends the process": ("import os\nos._exit(0)", "process is gone"),
    "exits": ("raise SystemExit(0)", "raised: SystemExit"),
    "takes all memory": ("return [Check('x', True, 'y' * (1 << 33))]", "raised: MemoryError"),
    "recurses": ("return check_output(fixture, output, context)", "raised: RecursionError"),
    "is not repeatable": (
        "fixture = globals()\nfixture['n'] = fixture.get('n', 0) + 1\nreturn [Check('x', fixture['n'] == 1, 'y')]",
        "deterministic",
    ),
    "writes a file": ("open('/scratch', 'w')", "touched the world: it opened a file for writing: '/scratch'"),
    "writes a file and hides it": (
        "try:\n    open('/tmp/x', 'a')\nexcept OSError:\n    pass\nreturn FINE",
        "touched the world: it opened a file for writing",
    ),
    "writes below the profiles": ("open('/opt/hermeval/profiles/good.py', 'r+')", "it opened a file for writing"),
    "reads a file": ("try:\n    open('/etc/passwd')\nfinally:\n    return FINE", "it opened a file for reading"),
    "opens a socket": (
        "import socket\ntry:\n    socket.socket()\nexcept OSError:\n    pass\nreturn FINE",
        "touched the world: it reached out of its process: socket.__new__",
    ),
    "forks": ("import os\ntry:\n    os.fork()\nfinally:\n    return FINE", "it reached out of its process: os.fork"),
    "starts a program": ("import subprocess\nsubprocess.run(['/bin/true'])", "it reached out of its process"),
    "becomes a program": ("import os\nos.execv('/usr/bin/python3', ['x'])", "it reached out of its process: os.exec"),
    "starts a thread": ("import threading\nthreading.Thread(target=print).start()", "start new thread"),
    "kills the host": ("import os\nos.kill(os.getppid(), 9)", "it reached out of its process: os.kill"),
    "lists a directory": ("import os\nos.listdir('/')", "it reached out of its process: os.listdir"),
    "loads a library": ("import ctypes\nreturn FINE", "raised: ImportError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_costs_its_own_attempt(host: Host, folder: Path, name: str) -> None:
    """Whatever a profile does wrong is a grader error with the reason, and the attempts before and after it are graded."""
    body, reason = FAULTS[name]
    add(folder, body)
    with ProfileHost(host, folder, limit_s=1.0) as profiles:
        assert asked(profiles, "before") == [True]
        with pytest.raises(GraderFault) as caught:
            asked(profiles, "evil", profile="evil")
        assert reason in caught.value.message
        assert caught.value.code == "grader-error"
        assert asked(profiles, "after", "no") == [False]
        assert profiles.starts == 1, "the host itself goes on"


def test_profile_cannot_answer_for_another_attempt(host: Host, folder: Path) -> None:
    """A profile that writes answers for other attempts into every descriptor it can find spoils its own attempt only."""
    forged = '{"seq": 2, "attempt": "victim", "answer": {"checks": [{"id": "said", "met": true, "reason": "forged"}], "diagnostics": null, "repeatable": true}}'
    add(
        folder,
        f"import os\nfor number in range(64):\n    try:\n        os.write(number, {forged!r}.encode() + b'\\n')\n    except OSError:\n        pass\nreturn FINE",
    )
    with ProfileHost(host, folder, limit_s=1.0) as profiles:
        with pytest.raises(GraderFault):
            asked(profiles, "evil", profile="evil")
        assert asked(profiles, "victim", "no") == [False]


def test_profile_may_use_its_neighbours_and_the_standard_library(host: Host, folder: Path) -> None:
    """A profile may import another module of the folder, a shipped one, and the standard library, also late."""
    (folder / "_words.py").write_text("YES = 'yes'\n")
    add(
        folder,
        "import decimal, difflib\nfrom profiles._words import YES\nfrom profiles import artifact\nprint('nobody reads this')\n"
        "return [Check('word', YES in output, 'y'), *artifact.check_output(fixture, output, context)]",
        "third",
    )
    with ProfileHost(host, folder) as profiles:
        assert asked(profiles, profile="third") == [True, True]
        assert asked(profiles, output="", profile="third") == [False, False]


def test_profile_sees_values_of_its_own(host: Host, folder: Path) -> None:
    """What a profile changes in fixture or context is not seen by its next call, and lone surrogates and NUL arrive as they are."""
    add(
        folder,
        "first = not fixture.get('seen')\nfixture['seen'] = True\ncontext['main_texts'].append('x')\n"
        "return [Check('fresh', first and len(context['main_texts']) == 2, 'y'), Check('text', output == 'a\\x00\\ud800', repr(output))]",
    )
    with ProfileHost(host, folder) as profiles:
        assert asked(profiles, output="a\x00\ud800", profile="evil", main_texts=["t"]) == [True, True]


def test_profile_is_not_affected_by_the_hash_seed(host: Host, folder: Path) -> None:
    """The order of a set of texts is the same in every host, so that checks that depend on it do not change from replay to replay."""
    add(folder, "return [Check('order', True, ' '.join(set('abcdefghij')))]")
    reasons = set()
    for _ in range(3):
        with ProfileHost(host, folder) as profiles:
            reasons.add(profiles.check("a", "evil", {}, "", {}).checks[0].reason)
    assert len(reasons) == 1


@pytest.mark.parametrize(
    ("diagnostic", "reason"),
    [
        ("Diagnostic('d', 'call-recovery', 'info', 'why', (0, 1))", None),
        ("Diagnostic('d', 'call-recovery', 'info', 'why', (2,))", "2 is no index into a trace of 2 rows"),
        ("Diagnostic('d', 'call-recovery', 'info', 'why', (True,))", "True is no index"),
        ("Diagnostic('d', 'call-recovery', 'info', 'why', 0)", "calls is a number"),
        ("Diagnostic('d', 'other', 'info', 'why')", "category is 'other'"),
        ("Diagnostic('d', 'call-recovery', 'fatal', 'why')", "severity is 'fatal'"),
        ("Diagnostic('d', 'call-recovery', 'info', '')", "the reason is blank"),
        ("Check('d', True, 'x')", "returned Check as item 0, not a Diagnostic"),
    ],
)
def test_diagnostics_are_complete(host: Host, folder: Path, diagnostic: str, reason: str | None) -> None:
    """A diagnostic with a wrong category, severity, reason or index is malformed; a complete one comes out as it is."""
    add(folder, "return FINE")
    with (folder / "evil.py").open("a") as file:
        file.write(f"def diagnose(fixture, output, context):\n    return [{diagnostic}]\n")
    with ProfileHost(host, folder) as profiles:
        if reason is None:
            (found,) = profiles.check("a", "evil", {}, "", {"tool_trace": [{}, {}]}).diagnostics
            assert (found.id, found.severity, found.calls) == ("d", "info", (0, 1))
            return
        with pytest.raises(GraderFault) as caught:
            profiles.check("a", "evil", {}, "", {"tool_trace": [{}, {}]})
        assert reason in caught.value.message


def test_module_that_cannot_be_imported_is_a_fault(host: Host, folder: Path) -> None:
    """A profile that raises when it is imported, or reaches out then, is a grader error; an unknown one is named with those that exist."""
    (folder / "broken.py").write_text("raise RuntimeError('at import')\n")
    (folder / "reaching.py").write_text("open('/x', 'w')\n")
    with ProfileHost(host, folder) as profiles:
        with pytest.raises(GraderFault, match="at import"):
            asked(profiles, profile="broken")
        with pytest.raises(GraderFault, match="touched the world"):
            asked(profiles, profile="reaching")
        with pytest.raises(ProfileUnknown) as unknown:
            asked(profiles, profile="none-such")
        assert "good" in unknown.value.hint
        assert asked(profiles) == [True]


def test_modules_have_one_digest(folder: Path, host: Host) -> None:
    """The digest over a folder's modules changes with any of them, a neighbour too."""
    before = ProfileHost(host, folder).modules.sha256
    (folder / "_words.py").write_text("YES = 'yes'\n")
    assert ProfileHost(host, folder).modules.sha256 != before


LOOKS = (
    "context['workspace']",
    "context.get('workspace')",
    "'workspace' in context",
    "context.pop('workspace', None)",
    "dict(context)",
    "{**context}",
    "list(context.items())",
    "context.copy()",
    "context | {}",
    "{} | context",
    "match context:\n    case {'workspace': _}:\n        pass",
    "import json\njson.dumps(context)",
    "import copy\ncopy.deepcopy(context)",
    "try:\n    context['workspace']\nexcept BaseException:\n    pass",
)


@pytest.mark.parametrize("look", LOOKS)
def test_a_workspace_that_shows_nothing_is_not_looked_at(host: Host, folder: Path, look: str) -> None:
    """A profile that asks for an unread workspace, or for all that there is, cannot answer; one that asks for something else can, and so can the same one over a whole workspace."""
    add(folder, f"{look}\nreturn FINE")
    add(folder, "context.get('skill_state')\ncontext['skill_state']\nreturn FINE", "other")
    with ProfileHost(host, folder) as profiles:
        assert asked(profiles, profile="evil", workspace=[]) == [True]
        with pytest.raises(GraderFault, match="cut short") as caught:
            profiles.check("a", "evil", {"id": "x"}, "yes", {"skill_state": "ran"}, unmeasured="it was cut short")
        assert caught.value.code == "workspace-unmeasured"
        assert caught.value.hint
        told = profiles.check("a", "other", {"id": "x"}, "yes", {"skill_state": "ran"}, unmeasured="it was cut short")
        assert [check.met for check in told.checks] == [True]
