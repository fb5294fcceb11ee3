"""Profile ``missing-account``: a role that is needed has no account, and none may be made up (B7).

Boundary: pure. Not here: whether the prose as a whole invents access; no text match can decide that, the rubric does (B6).
Rules: role, accounts and addresses come from the fixture's ``input``; every check reads the output line by line, markup taken off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiles._types import Check, Context, FixtureJson

DEFAULT_TERMS = ("unresolved",)
"""Words that keep an account open, unless ``expect.unresolved_terms`` names others."""

_ADDRESS = re.compile(
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*|(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://[^\s/?#<>\"'`)\]]+", re.IGNORECASE
)
_MARKUP = re.compile(r"[*_`|~\"']+")
_BULLET = re.compile(r"^[\s>#+-]*(?:\d+[.)]\s+)?")


@dataclass(frozen=True, slots=True)
class _Case:
    role: str
    accounts: tuple[str, ...]
    terms: tuple[str, ...]
    addresses: frozenset[str]


def validate(fixture: FixtureJson) -> None:
    """Refuse a case in which the account is not missing, or that does not say what is required.

    ``input.required_role`` is the role; ``input.accounts`` (optional) lists ``{"name", "roles"}`` of the accounts that exist;
    ``expect.unresolved_terms`` (optional) lists words of which one must stand beside the role.
    Raises: ValueError with the JSON pointer.
    """
    _case(fixture)


def check_output(fixture: FixtureJson, output: str, context: Context) -> list[Check]:
    """Check that the role stays visible, its account stays open, and no account or address appears from nowhere.

    Raises: ValueError for a fixture that ``validate`` refuses; TypeError if the output is no text.
    """
    if not isinstance(output, str):
        raise TypeError(f"the output is {type(output).__name__}, not text")
    case = _case(fixture)
    lines = [_MARKUP.sub(" ", line) for line in output.splitlines() if line.strip()]
    return [_role_preserved(case, lines), _account_unresolved(case, lines), _no_invented_access(case, lines, output)]


def _role_preserved(case: _Case, lines: Sequence[str]) -> Check:
    met = any(_holds(line, case.role) for line in lines)
    return Check("role-preserved", met, f"The required role {case.role!r} must remain visible")


def _account_unresolved(case: _Case, lines: Sequence[str]) -> Check:
    met = any(_holds(line, case.role) and any(_holds(line, term) for term in case.terms) for line in lines)
    said = " or ".join(repr(term) for term in case.terms)
    return Check("account-unresolved", met, f"One line must name the role {case.role!r} and call its account {said}")


def _no_invented_access(case: _Case, lines: Sequence[str], output: str) -> Check:
    strange = sorted(_found(output) - case.addresses)
    if strange:
        return Check(
            "no-invented-access", False, f"The output gives an address that the input does not hold: {strange[0]!r}"
        )
    for line in lines:
        given = _assigned(line, case)
        if given is not None:
            return Check(
                "no-invented-access",
                False,
                f"The output assigns {given!r} to the role {case.role!r}, which has no account",
            )
    return Check(
        "no-invented-access", True, "No address from outside the input, and no account assigned to the missing role"
    )


def _assigned(line: str, case: _Case) -> str | None:
    """Return what a line of the form ``role: account`` gives to the missing role, or None if it keeps it open."""
    rest = _BULLET.sub("", line, count=1)
    match = re.match(
        rf"(?:role\s+)?{re.escape(case.role)}\s*(?:account\s*)?(?::|=|->|=>|→)\s*(\S.*)", rest, re.IGNORECASE
    )
    if match is None:
        return None
    value = match.group(1).strip()
    if any(_holds(value, term) for term in case.terms):
        return None
    known = [name for name in case.accounts if _holds(value, name)]
    bare_name = re.fullmatch(r"[\w.@+-]+[.;,]?", value) is not None
    return known[0] if known else (value if bare_name else None)


def _holds(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def _case(fixture: FixtureJson) -> _Case:
    given = _object(fixture.get("input"), "/input")
    role = _text(given.get("required_role"), "/input/required_role")
    accounts = _list(given.get("accounts", []), "/input/accounts")
    names = tuple(_account(account, role, f"/input/accounts/{index}") for index, account in enumerate(accounts))
    return _Case(role, names, _terms(fixture.get("expect")), frozenset(_addresses(given)))


def _account(account: object, role: str, where: str) -> str:
    held_by = _object(account, where)
    name = _text(held_by.get("name"), f"{where}/name")
    roles = _list(held_by.get("roles"), f"{where}/roles")
    if role.casefold() in {_text(held, f"{where}/roles").casefold() for held in roles}:
        raise ValueError(f"{where}/roles: the account {name!r} has the required role, so none is missing")
    return name


def _terms(expect: object) -> tuple[str, ...]:
    wanted = _object(expect if expect is not None else {}, "/expect")
    unknown = sorted(str(key) for key in wanted if key != "unresolved_terms")
    if unknown:
        raise ValueError(f"/expect/{unknown[0]}: unknown expectation of the profile 'missing-account'")
    terms = _list(wanted.get("unresolved_terms", list(DEFAULT_TERMS)), "/expect/unresolved_terms")
    if not terms:
        raise ValueError("/expect/unresolved_terms: expected a list of words that is not empty")
    return tuple(_text(term, f"/expect/unresolved_terms/{index}") for index, term in enumerate(terms))


def _object(value: object, where: str) -> Mapping[str, object]:
    match value:
        case Mapping():
            return value
        case _:
            raise ValueError(f"{where}: expected an object")


def _list(value: object, where: str) -> Sequence[object]:
    match value:
        case list() | tuple():
            return value
        case _:
            raise ValueError(f"{where}: expected a list")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: expected text that is not blank")
    return value.strip()


def _addresses(value: object) -> set[str]:
    """Collect every address that stands in a JSON value, keys too."""
    if isinstance(value, str):
        return _found(value)
    if isinstance(value, Mapping):
        return {found for key, held in value.items() for part in (key, held) for found in _addresses(part)}
    if isinstance(value, Sequence):
        return {found for part in value for found in _addresses(part)}
    return set()


def _found(text: str) -> set[str]:
    return {found.casefold().rstrip(".,;:!") for found in _ADDRESS.findall(text)}
