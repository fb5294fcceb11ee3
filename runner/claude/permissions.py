"""Permission rules of the CLI's settings, as far as they decide whether a skill may run (cases S03).

Boundary: pure. Not here: the command line (launch.py).
Rules: a policy that lists what is allowed refuses every skill that it does not name, and the model then works on without it; so whoever writes
settings writes a rule for the skills under test too. A rule that denies a skill is kept: that is how its refusal is tested (acceptance 3 of the first issue).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def with_skill_rules(
    permissions: Mapping[str, object], skills: Sequence[str]
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the permission rules with ``Skill(NAME)`` allowed for each skill that no rule speaks of, and what was added or denied, in words.

    Every other key stays as it is; empty lists go.
    """
    missing = missing_skill_rules(permissions, skills)
    rules: dict[str, object] = {key: value for key, value in permissions.items() if key not in ("allow", "deny")}
    allow = [*_rules(permissions, "allow"), *(f"Skill({name})" for name in missing)]
    deny = _rules(permissions, "deny")
    if allow:
        rules["allow"] = allow
    if deny:
        rules["deny"] = deny
    notes = [f"allowed Skill({name}), which the settings did not name" for name in missing]
    notes += [f"the settings deny Skill({name})" for name in skills if denies_skill(permissions, name)]
    return rules, tuple(notes)


def missing_skill_rules(permissions: Mapping[str, object], skills: Sequence[str]) -> tuple[str, ...]:
    """Return the skills that the policy neither allows nor denies, in the order given: what ``doctor`` warns about."""
    allowed = set(_rules(permissions, "allow"))
    return tuple(
        name for name in skills if not allowed & {"Skill", f"Skill({name})"} and not denies_skill(permissions, name)
    )


def denies_skill(permissions: Mapping[str, object], name: str) -> bool:
    """Whether a rule of the policy denies the skill."""
    return bool({"Skill", f"Skill({name})"} & set(_rules(permissions, "deny")))


def _rules(permissions: Mapping[str, object], key: str) -> list[str]:
    given = permissions.get(key)
    return [rule for rule in given if isinstance(rule, str)] if isinstance(given, list | tuple) else []
