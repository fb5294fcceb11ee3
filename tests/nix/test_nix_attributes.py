"""All use of nixpkgs goes through one short list: what the list names, what the flake uses and what the stand-in offers are the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.nix.conftest import ROOT, Checkout

ON_NIXPKGS_ALONE = {ROOT / "nix" / "runner-test.nix"}
"""Evaluated by the internet job only, with NixOS itself, which no stand-in offers; the flake does not import it."""
NIX = sorted({*(ROOT / "nix").rglob("*.nix"), ROOT / "flake.nix"} - ON_NIXPKGS_ALONE)
RENAMED = {
    "nodejs_24": "nodejs",
    "python313": "python",
    "python313Packages.pip": "pip",
    "stdenv.cc.cc.lib": "cxx",
    "gitMinimal": "git",
}
FOR_NIX_ITSELF = {"bashInteractive"}
"""``nix develop`` asks for it."""


def listed() -> list[str]:
    """The list, as it is written."""
    text = (ROOT / "nix" / "attributes.nix").read_text()
    return re.findall(r'^  "([^"]+)"', text, re.MULTILINE)


def code(path: Path) -> str:
    """A file without its comments."""
    return re.sub(r"(^|\s)#.*", "", path.read_text())


def test_the_list_is_sorted_and_short() -> None:
    """No attribute twice, in order, few enough to be looked through."""
    names = listed()
    assert names == sorted(set(names), key=str.lower)
    assert 10 < len(names) < 40


def test_the_flake_uses_exactly_what_is_listed() -> None:
    """Every ``pkgs.NAME`` of the flake is on the list, and nothing is on it that the flake does not use."""
    used = {
        name
        for path in NIX
        if path.name not in ("pkgs.nix", "attributes.nix") and path.parent.name != "modules"
        for name in re.findall(r"(?<!/)\bpkgs\.([A-Za-z0-9_]+)", code(path))
    }
    assert used == {RENAMED.get(name, name) for name in listed()} - FOR_NIX_ITSELF


def test_nothing_reaches_past_the_list() -> None:
    """``nixpkgs`` is touched in one place, but for the stand-in's own flag; nothing else of it (its lib, overlays, an import) is used."""
    for path in NIX:
        found = set(re.findall(r"\bnixpkgs\.([A-Za-z]+)", code(path)))
        allowed = {"pkgs.nix": {"legacyPackages"}, "default.nix": {"standIn"}, "flake.nix": {"url"}}
        assert found <= allowed.get(path.name, set()), path
    text = (ROOT / "nix" / "pkgs.nix").read_text()
    assert dict(re.findall(r'"([^"]+)" = "([^"]+)";', text)) == RENAMED


def test_what_stands_apart_is_no_part_of_the_flake() -> None:
    """A file that may use all of nixpkgs is named by no other Nix file, so nothing of it can reach a build that runs without the internet."""
    for path in ON_NIXPKGS_ALONE:
        assert path.is_file()
        assert [other.name for other in NIX if path.stem in code(other)] == []
    assert [other.name for other in NIX if "attributes" in code(other)] != []


def test_the_flake_has_one_input_and_the_lock_is_the_verified_one() -> None:
    """flake.lock holds nixpkgs 26.05 at the revision whose hash was verified, and nothing else; flake.nix asks for that branch."""
    lock: dict[str, Any] = json.loads((ROOT / "flake.lock").read_text())
    assert set(lock["nodes"]) == {"root", "nixpkgs"}
    assert lock["nodes"]["root"] == {"inputs": {"nixpkgs": "nixpkgs"}}
    locked, original = lock["nodes"]["nixpkgs"]["locked"], lock["nodes"]["nixpkgs"]["original"]
    assert locked == {
        "lastModified": 1790340521,
        "narHash": "sha256-cRrWlIjVRJ6BHDr9caUdXsZ3owzWIKYHpNmGPHBInIU=",
        "owner": "NixOS",
        "repo": "nixpkgs",
        "rev": "f5c082a40f7571c266e74e80ae2e68aadd8a9fc7",
        "type": "github",
    }
    assert original == {"owner": "NixOS", "ref": "nixos-26.05", "repo": "nixpkgs", "type": "github"}
    flake = (ROOT / "flake.nix").read_text()
    assert re.findall(r"^ *inputs\b.*$", flake, re.MULTILINE) == [
        '  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";'
    ]


def test_every_room_of_tests_is_in_the_flakes_check_or_proved_elsewhere() -> None:
    """A new folder of tests is named in nix/rooms.json, so that nothing is left out of the check in silence."""
    rooms: dict[str, Any] = json.loads((ROOT / "nix" / "rooms.json").read_text())
    there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set(rooms["unit"]) | set(rooms["elsewhere"]) == there
    assert not set(rooms["unit"]) & set(rooms["elsewhere"])
    assert all(len(reason) > 3 for reason in rooms["elsewhere"].values())


@pytest.mark.nix
@pytest.mark.timeout(1200)
def test_the_stand_in_offers_exactly_what_is_listed(plain: Checkout) -> None:
    """For both systems, the stand-in's attributes are those of the list; a name beyond would hide that the flake began to use it."""
    apply = (
        "all: builtins.mapAttrs (_: p: let walk = prefix: set: builtins.concatLists (map (n: let v = set.${n}; in "
        'if builtins.isAttrs v && v.type or null != "derivation" then walk (prefix + n + ".") v else [ (prefix + n) ]) '
        '(builtins.attrNames set)); in walk "" p) all'
    )
    done = plain.shell(f"nix eval --json --apply '{apply}' \"${{standin[2]}}#legacyPackages\"")
    assert done.code == 0, done.err
    assert done.value == {system: sorted(listed()) for system in ("aarch64-linux", "x86_64-linux")}
