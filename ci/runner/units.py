"""Makes the plain unit files of the hardened runner from the one table, options.json.

Boundary: ``render`` is pure; as a program it reads the table and writes below ``host/``. Not here: NixOS (nix/modules/hardened-runner.nix reads the same table), installing (install).
Rules: nothing about a unit is said here, only how it is written down. The committed files are what ``render`` gives; tests/hold compares them, and the NixOS module's options with them.

    python3 ci/runner/units.py     writes host/ anew
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TABLE = HERE / "options.json"
HOST = HERE / "host"
HEAD = "# Made by ci/runner/units.py from options.json; change it there, or by a drop-in.\n"


def load_table() -> dict[str, Any]:
    """Return the table."""
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def render(table: Mapping[str, Any]) -> dict[str, str]:
    """Return every file: path below ``host/`` → text."""
    files = {f"systemd/{name}": _unit(sections, table["plain"]) for name, sections in table["units"].items()}
    files["sysctl.d/60-hermeval.conf"] = HEAD + "".join(
        f"{_why(why)}{key} = {value}\n" for key, value, why in table["sysctl"]
    )
    files["tmpfiles.d/hermeval.conf"] = HEAD + "".join(
        f"{_why(entry[-1])}{' '.join(entry[:-1])} -\n" for entry in table["tmpfiles"]
    )
    users = [f'u {name} - "{said}"\n' for name, said in table["users"].items()]
    groups = [f"{_why(said)}g {name} -\n" for name, said in table["groups"].items()]
    files["sysusers.d/hermeval.conf"] = HEAD + "".join(users + groups)
    return files


def lines(option: str, value: object) -> Iterator[str]:
    """Yield an option's lines as systemd reads them; a list is one line a value."""
    for one in value if isinstance(value, list) else [value]:
        yield f"{option}={str(one).lower() if isinstance(one, bool) else one}"


def _unit(sections: Mapping[str, Any], paths: Mapping[str, str]) -> str:
    text = HEAD
    for section, options in sections.items():
        text += f"\n[{section}]\n"
        for option, value, why in options:
            text += _why(why) + "".join(line + "\n" for line in lines(option, value))
    for name, path in paths.items():
        text = text.replace(f"@{name}@", path)
    return text


def _why(why: str) -> str:
    return f"# {why}\n" if why else ""


def main() -> None:
    """Write the files."""
    for name, text in render(load_table()).items():
        path = HOST / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
