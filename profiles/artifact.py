"""Profile ``artifact``: the output is there. For cases whose meaning lies in the rubric alone (B7).

Boundary: pure. Not here: the meaning of the output (the fixture's rubric).
Rules: one check, no expectation.
"""

from __future__ import annotations

from profiles._types import Check, Context, FixtureJson


def validate(fixture: FixtureJson) -> None:
    """Refuse a fixture that carries an expectation, which this profile would never look at.

    Raises: ValueError if ``expect`` holds anything.
    """
    if fixture.get("expect"):
        raise ValueError("/expect: the profile 'artifact' has no expectations; use the rubric, or another profile")


def check_output(fixture: FixtureJson, output: str, context: Context) -> list[Check]:
    """Check that the output holds something to read.

    Raises: TypeError if the output is no text.
    """
    if not isinstance(output, str):
        raise TypeError(f"the output is {type(output).__name__}, not text")
    met = bool(output.strip())
    return [Check("output-present", met, "The output holds text" if met else "The output is empty or blank")]
