"""What is missing before a command can begin is exit status 2 and one object too: the set-up script's errors, and a place for attempts (B11, C5)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.cli.run import default_out
from runner.errors import SettingInvalid

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_set_up_that_fails_is_two_and_one_object(tmp_path: Path, as_json: bool) -> None:
    """A cache that cannot be made, with a quote in its name: an object on stdout where it was asked for, and nothing where it was not."""
    (tmp_path / 'a"file').write_text("")
    done = subprocess.run(
        ["/usr/bin/bash", str(ROOT / "ci" / "hermeval"), "verify", "nothing", *(["--json"] if as_json else [])],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HERMEVAL_CACHE": str(tmp_path / 'a"file' / "cache")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "error[set-up-failed]" in done.stderr
    if not as_json:
        assert done.stdout == ""
        return
    value = json.loads(done.stdout)
    assert (value["command"], value["exit_code"], value["error"]["code"]) == ("verify", 2, "set-up-failed")
    assert value.keys() >= {"schema_version", "verdict", "summary", "attempts", "results"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTHONHASHSEED", "bad"),
        ("PYTHONHOME", "/x"),
        ("PYTHONUTF8", "7"),
        ("PYTHONMALLOC", "bad"),
        ("PYTHONIOENCODING", "bogus"),
    ],
)
def test_a_callers_python_variable_does_not_end_the_command(tmp_path: Path, name: str, value: str) -> None:
    """Python says 1 by itself under each, which is the control, and 1 would mean *measured, and failed*; what begins as ``ci/hermeval`` and ``ci/test`` do starts it all the same."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), name: value}
    start = f'exec "{sys.executable}" -P -c "print(6 * 7)"'
    begun = {script: (ROOT / "ci" / script).read_text().index("bootstrap.sh") for script in ("hermeval", "test")}
    assert all(at < (ROOT / "ci" / script).read_text().index("venv/bin/python") for script, at in begun.items())
    done = {
        text: subprocess.run(
            ["/usr/bin/bash", "-c", text], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        for text in (start, f'. "{ROOT}/ci/bootstrap.sh"; {start}')
    }
    bare, prepared = done.values()
    assert (bare.returncode, bare.stdout) == (1, ""), bare.stderr
    assert (prepared.returncode, prepared.stdout) == (0, "42\n"), prepared.stderr


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}, {"XDG_STATE_HOME": "relative"}])
def test_without_a_home_attempts_have_no_place_of_their_own(environ: dict[str, str]) -> None:
    """Nothing is made up: root would have written below a directory that nobody named."""
    with pytest.raises(SettingInvalid, match="HOME"):
        default_out(environ)


def test_a_home_or_a_state_directory_is_a_place() -> None:
    """The control."""
    assert default_out({"HOME": "/h"}) == Path("/h/.local/state/hermeval/attempts")
    assert default_out({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == Path("/s/hermeval/attempts")
