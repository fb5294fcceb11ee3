"""Reproduce committed attempts where a colleague would: at other places, as other users, at other times (issue 3, acceptance 3).

Boundary: copies the checkout, changes uid, starts ``hermeval reproduce``. Used once each by the tests and many times by ``ci/soak-reproduce``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from runner.pinned_parts import open_parts
from tests.copies import copy_folder
from tests.run.installed import CACHE, find_python

ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = ROOT / "fixtures" / "attempts"
OTHER_UID = 61236
_PARTS = ("runner", "sandbox", "profiles", "fixtures")
_HERE = ("PATH", "HOME", "LANG")


@dataclass(frozen=True)
class Word:
    """What one reproduction came to: ``exact``, ``normalised``, ``diverged`` or, for ``error``, its code."""

    attempt: str
    word: str
    code: str | None = None


def expected() -> dict[str, frozenset[str]]:
    """The words of expected.json by attempt, those that only replay included: they must be refused."""
    listed = json.loads((ATTEMPTS / "expected.json").read_text(encoding="utf-8"))["attempts"]
    return {name: frozenset(row["reproduce"]) for name, row in listed.items()}


class Place:
    """A way to run ``hermeval reproduce`` somewhere else. A context: what it made is gone after it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.base = Path(mkdtemp(prefix="hermeval-place-"))
        self.base.chmod(0o755)
        self._stack.callback(shutil.rmtree, self.base)
        self.checkout = ROOT
        self.prefix: tuple[str, ...] = ()
        self.options: tuple[str, ...] = ()
        open_parts(CACHE, search=os.environ.get("PATH"))  # another user may read the cache and not write to it
        kept = {name: os.environ[name] for name in _HERE if name in os.environ}
        self.env = {**kept, "HERMEVAL_CACHE": str(CACHE), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"}

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def move(self) -> None:
        """Take another checkout, with a space and a letter beyond ASCII in its path."""
        self.checkout = self.base / "ein anderer Ört" / "hermeval"
        for name in _PARTS:
            copy_folder(ROOT / name, self.checkout / name)

    def reproduce(self, names: Sequence[str]) -> list[Word]:
        """Reproduce the attempts in one command and return a word for each, in their order."""
        argv = [*self.prefix, str(find_python()), "-P", "-m", "runner.cli", "reproduce", "--json", *self.options]
        argv += [str(self.checkout / "fixtures" / "attempts" / name) for name in names]
        env = {**self.env, "PYTHONPATH": str(self.checkout)}
        done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=1800, check=False)
        assert done.stdout, done.stderr[-3000:]
        rows = json.loads(done.stdout)["results"]
        return [_word(name, row) for name, row in zip(names, rows, strict=True)]


def _word(name: str, row: dict[str, Any]) -> Word:
    error = row.get("error")
    return Word(name, row["verdict"], error["code"] if error else None)


def other_path(place: Place) -> None:
    """(a) Another checkout path."""
    place.move()


def other_user(place: Place) -> None:
    """(b) Another uid and home; an ordinary user, who cannot change uid, has another one in a user namespace."""
    place.move()
    home = place.base / "home"
    home.mkdir()
    if os.geteuid() == 0:
        os.chown(home, OTHER_UID, OTHER_UID)
        place.prefix = ("setpriv", f"--reuid={OTHER_UID}", f"--regid={OTHER_UID}", "--clear-groups")
    else:
        place.prefix = ("unshare", "--user", f"--map-user={OTHER_UID}", f"--map-group={OTHER_UID}")
    place.env["HOME"] = str(home)


def other_zone(place: Place) -> None:
    """(c) Another time zone and locale."""
    place.env |= {"TZ": "Pacific/Kiritimati", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "LANGUAGE": "tr"}


def other_date(place: Place) -> None:
    """(d) Another date: a clock preloaded inside is a thousand days on. What ran pinned has its own date."""
    place.options = ("--shift-date", "86400000")


PLACES: dict[str, Callable[[Place], None]] = {
    "path": other_path,
    "user": other_user,
    "zone": other_zone,
    "date": other_date,
}
"""The places by the name that the soak takes; ``nix`` is beside them, since a build is no process of ours."""

_GAVE = re.compile(r"^reproduce-(?P<name>[\w-]+)> reproduce gave \[\"(?P<word>\w+)\"\]$", re.MULTILINE)
_SCRIPT = """
set -uo pipefail
. "$1/ci/nix-standin.sh"
status=0
rebuild=$2
shift 2
nix build $rebuild --no-link --keep-going "${standin[@]}" "${@/#/$flake#checks.$system.reproduce-}" || status=$?
for name; do
  nix log "${standin[@]}" "$flake#checks.$system.reproduce-$name" | sed "s/^/reproduce-$name> /"
done
exit $status
"""


def reproduce_in_nix(names: Sequence[str], checkout: Path = ROOT, *, again: bool = False) -> list[Word]:
    """(e) Inside a Nix build, one derivation an attempt, with the stand-in for nixpkgs; ``again`` builds anew what was built.

    The words are read in the builds' logs. A build that failed has the word ``error`` and what Nix said last.
    """
    argv = ["bash", "-c", _SCRIPT, "reproduce-in-nix", str(checkout), "--rebuild" if again else ""]
    argv += [name.removesuffix(".attempt") for name in names]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3600, check=False)
    gave = {f"{found['name']}.attempt": found["word"] for found in _GAVE.finditer(done.stdout)}
    failed = done.stderr[-600:] if done.returncode else None
    return [Word(name, gave.get(name, "error"), failed or (None if name in gave else "no log")) for name in names]
