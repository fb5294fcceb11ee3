"""Reading a fixture's JSON with a pointer to what is wrong.

Boundary: pure. Not here: what a case must hold (the profile).
Rules: every refusal is a ValueError whose message begins with the JSON pointer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def mapping_at(value: object, where: str) -> Mapping[str, object]:
    """Return an object. Raises: ValueError."""
    match value:
        case Mapping():
            return value
        case _:
            raise ValueError(f"{where}: expected an object")


def list_at(value: object, where: str, *, filled: bool = False) -> Sequence[object]:
    """Return a list, with ``filled`` one that is not empty. Raises: ValueError."""
    match value:
        case list() | tuple() if value or not filled:
            return value
        case _:
            raise ValueError(f"{where}: expected a list{' that is not empty' if filled else ''}")


def text_at(value: object, where: str) -> str:
    """Return a text that is not blank, blanks around it taken off. Raises: ValueError."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: expected text that is not blank")
    return value.strip()


def number_at(value: object, where: str, *, least: int) -> int:
    """Return an integer of at least ``least``. Raises: ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{where}: expected an integer of at least {least}")
    return value


def same(left: object, right: object) -> bool:
    """Whether two JSON values are equal as JSON: true is not 1, whatever Python says; 1 is 1.0."""
    match left, right:
        case (Mapping(), Mapping()):
            return left.keys() == right.keys() and all(same(held, right[key]) for key, held in left.items())
        case (list() | tuple(), list() | tuple()):
            return len(left) == len(right) and all(map(same, left, right))
        case _:
            return isinstance(left, bool) == isinstance(right, bool) and left == right


def known_keys(value: Mapping[str, object], known: Collection[str], where: str) -> None:
    """Refuse an object with another key than ``known``. Raises: ValueError."""
    for key in value:
        if key not in known:
            raise ValueError(f"{where}/{key}: unknown; known are {', '.join(sorted(known))}")
