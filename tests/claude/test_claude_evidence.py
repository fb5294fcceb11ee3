"""The skill's state from one witness and from two (A3, A4, A5, A7)."""

from __future__ import annotations

from typing import Any

import pytest

from runner.claude.evidence import Requirement, WireEvidence, judge_skill

CF = Requirement.parse("cf")
UNIT = Requirement.parse("cf/references/a.md")
READ = {"file_path": "/home/eval/.claude/skills/cf/references/a.md"}


def _wire(*ways: str, reference: bool = True) -> WireEvidence:
    return WireEvidence(tool="tool" in ways, slash="slash" in ways, reference=reference)


def test_nothing_required_means_no_state(say: Any) -> None:
    """Without a required skill there is neither state nor code, whatever ran (A3)."""
    verdict = judge_skill(say.whole(say.replay(say.tags("cf"))), None, None)
    assert (verdict.state, verdict.code, verdict.transcript, verdict.wire) == (None, None, None, None)


@pytest.mark.parametrize(
    ("text", "names", "reference"),
    [
        ("cf", ("cf",), None),
        ("myplug:cf", ("myplug:cf",), None),
        ("cf/references/a.md", ("cf",), "references/a.md"),
        ("/cf/references/sub/a.md", ("cf",), "references/sub/a.md"),
        ("team/cf", ("team/cf",), None),
        ("cf/references/a.txt", ("cf/references/a.txt",), None),
    ],
)
def test_a_unit_is_a_skill_or_a_reference_of_it(text: str, names: tuple[str, ...], reference: str | None) -> None:
    """``<skill>/references/<file>.md`` is a reference unit, anything else a name (B2)."""
    requirement = Requirement.parse(text)
    assert (requirement.names, requirement.reference) == (names, reference)


def test_a_bare_transcript_is_judged_by_itself(say: Any) -> None:
    """ran by a good call or by tags; failed by a bad call; absent where replays show no load; unproven where nothing tells."""
    good, bad = say.answer("t1"), say.answer("t1", is_error=True)
    rows = {
        "tool": ([say.skill("t1", "cf"), good], "ran", True, None),
        "slash": ([say.replay(say.tags("cf"))], "ran", True, None),
        "one good load is enough": ([say.replay(say.tags("cf")), say.skill("t1", "cf"), bad], "ran", True, None),
        "bad": ([say.skill("t1", "cf"), bad], "failed", False, "skill-failed"),
        "no result": ([say.skill("t1", "cf")], "failed", False, "skill-failed"),
        "bad after a raw replay": ([say.replay("do it"), say.skill("t1", "cf"), bad], "failed", False, "skill-failed"),
        "raw slash": ([say.replay("/cf write")], "absent", False, "skill-absent"),
        "another skill's tags": ([say.replay(say.tags("other"))], "absent", False, "skill-absent"),
        "nothing replayed": ([say.text()], "unproven", None, "skill-unproven"),
        "another skill's call": ([say.skill("t1", "other"), good], "unproven", None, "skill-unproven"),
        "another skill failed": (
            [say.skill("t2", "other"), say.answer("t2", is_error=True), say.skill("t1", "cf"), good],
            "ran",
            True,
            None,
        ),
        "a sub-agent's load": (
            [say.replay("do it"), say.skill("t1", "cf", parent="p"), say.answer("t1", parent="p")],
            "absent",
            False,
            "skill-absent",
        ),
        "a tool's error": (
            [
                say.call("t2", "Bash", {}),
                say.answer("t2", "Execute skill: cf", is_error=True),
                say.skill("t1", "cf"),
                good,
            ],
            "ran",
            True,
            None,
        ),
        "the name in args": (
            [say.replay("x"), say.call("t1", "Skill", {"skill": "other", "args": "cf", "mode": "cf"}), good],
            "absent",
            False,
            "skill-absent",
        ),
        "refused in words": (
            [say.skill("t1", "cf"), say.answer("t1", "<error>Execute skill: cf</error>")],
            "failed",
            False,
            "skill-failed",
        ),
        "no success": (
            [say.skill("t1", "cf"), say.answer("t1", tool_use_result={"success": False})],
            "failed",
            False,
            "skill-failed",
        ),
        "another's refusal in words": (
            [say.skill("t1", "cf"), say.answer("t1", "<error>Execute skill: cf-generate</error>")],
            "ran",
            True,
            None,
        ),
    }
    for name, (events, state, witness, code) in rows.items():
        verdict = judge_skill(say.whole(*events), CF, None)
        assert (verdict.state, verdict.transcript, verdict.wire, verdict.code) == (state, witness, None, code), name


def test_what_init_lists_is_no_evidence(say: Any) -> None:
    """A listed skill that nobody loaded is as absent as an unlisted one; an unlisted one that was loaded ran."""
    listed = say.init(skills=["cf"])
    assert judge_skill(say.whole(say.replay("x"), init=listed), CF, None).state == "absent"
    assert judge_skill(say.whole(say.replay(say.tags("cf"))), CF, None).state == "ran"


def test_an_ambiguous_bare_name_is_an_error(say: Any) -> None:
    """Two listed skills that end in it: no state is claimed, with or without requests; the qualified name is judged."""
    init = say.init(skills=["finance:cf", "legal:cf"])
    transcript = say.whole(say.skill("t1", "finance:cf"), say.answer("t1"), init=init)
    for wire in (None, _wire("tool")):
        verdict = judge_skill(transcript, CF, wire)
        assert (verdict.state, verdict.code) == ("unproven", "skill-ambiguous")
        assert "legal:cf" in verdict.message
    assert judge_skill(transcript, Requirement.parse("finance:cf"), None).state == "ran"
    assert judge_skill(transcript, Requirement.parse("legal:cf"), None).state == "unproven"
    one = say.whole(say.skill("t1", "finance:cf"), say.answer("t1"), init=say.init(skills=["finance:cf"]))
    assert judge_skill(one, CF, None).state == "ran"


def test_both_witnesses_must_show_one_and_the_same_way(say: Any) -> None:
    """Each pair of what the transcript shows and what the requests show, with state, words and code."""
    tool = [say.skill("t1", "cf"), say.answer("t1")]
    bad = [say.skill("t1", "cf"), say.answer("t1", is_error=True)]
    slash, prose = [say.replay(say.tags("cf"))], [say.replay("do it")]
    above, other_above = (
        {
            **say.replay([{"type": "text", "text": f"Skill /{name} is already loaded above; instructions unchanged."}]),
            "isReplay": False,
            "isSynthetic": True,
        }
        for name in ("cf", "cf-generate")
    )
    rows = [
        (tool, ("tool",), "ran", True, True, None),
        (slash, ("slash",), "ran", True, True, None),
        ([*slash, *tool], ("slash",), "ran", True, True, None),
        ([*slash, *bad], ("slash",), "ran", True, True, None),
        ([*tool, above], ("slash",), "ran", True, True, None),
        ([*bad, above], ("slash",), "unproven", False, True, "witnesses-disagree"),
        ([*tool, other_above], ("slash",), "unproven", True, True, "witnesses-disagree"),
        ([*tool, above], (), "unproven", True, False, "witnesses-disagree"),
        ([*prose, *tool, above], ("slash",), "unproven", True, True, "witnesses-disagree"),
        (tool, ("slash",), "unproven", True, True, "witnesses-disagree"),
        (bad, ("slash",), "unproven", False, True, "witnesses-disagree"),
        ([], ("slash",), "ran", None, True, None),
        ([], ("tool",), "ran", None, True, None),
        ([], (), "absent", None, False, "skill-absent"),
        (bad, (), "failed", False, False, "skill-failed"),
        ([*prose, *bad], (), "failed", False, False, "skill-failed"),
        (prose, (), "absent", False, False, "skill-absent"),
        (tool, (), "unproven", True, False, "witnesses-disagree"),
        (slash, (), "unproven", True, False, "witnesses-disagree"),
        (prose, ("slash",), "unproven", False, True, "witnesses-disagree"),
        (prose, ("tool",), "unproven", False, True, "witnesses-disagree"),
        ([*prose, *tool], ("slash",), "unproven", True, True, "witnesses-disagree"),
        (slash, ("tool",), "unproven", True, True, "witnesses-disagree"),
        (bad, ("tool",), "unproven", False, True, "witnesses-disagree"),
    ]
    for index, (events, ways, *expected) in enumerate(rows):
        verdict = judge_skill(say.whole(*events), CF, _wire(*ways))
        assert [verdict.state, verdict.transcript, verdict.wire, verdict.code] == expected, index


def test_a_reference_unit_needs_the_reference_too(say: Any) -> None:
    """SKILL.md alone is absent; the reference read by Read, or on the wire by any way, makes it ran."""
    slash = [say.replay(say.tags("cf"))]
    read = [say.call("t2", "Read", READ), say.answer("t2", "1\tx")]
    rows = [
        ([*slash, *read], None, "ran", True, None, None),
        (slash, None, "absent", False, None, "skill-absent"),
        (read, None, "unproven", None, None, "skill-unproven"),
        ([say.replay("x"), *read], None, "absent", False, None, "skill-absent"),
        ([*slash, *read], _wire("slash"), "ran", True, True, None),
        (slash, _wire("slash"), "ran", True, True, None),
        (slash, _wire("slash", reference=False), "absent", False, False, "skill-absent"),
        ([*slash, *read], _wire("slash", reference=False), "unproven", True, False, "witnesses-disagree"),
        (read, _wire("slash"), "ran", None, True, None),
        ([say.replay("x"), *read], _wire(), "absent", False, False, "skill-absent"),
    ]
    for index, (events, wire, *expected) in enumerate(rows):
        verdict = judge_skill(say.whole(*events), UNIT, wire)
        assert [verdict.state, verdict.transcript, verdict.wire, verdict.code] == expected, index


def test_another_skills_reference_is_not_the_units(say: Any) -> None:
    """The path must lie in the unit's own directory: by name, or by the plan where one is known."""
    planned = Requirement(names=("cf",), reference="references/a.md", directory="/home/eval/.claude/skills/cf")
    for path, by_name, by_plan in (
        ("/home/eval/.claude/skills/cf/references/a.md", True, True),
        ("/workspace/.claude/skills/cf/references/a.md", True, False),
        ("/home/eval/.claude/skills/other/references/a.md", False, False),
        ("/home/eval/.claude/skills/cf/references/b.md", False, False),
        ("/home/eval/.claude/skills/cf/x/references/a.md", False, False),
    ):
        assert (UNIT.is_reference(path), planned.is_reference(path)) == (by_name, by_plan), path


def test_what_came_after_the_answer_is_no_evidence_for_it(say: Any) -> None:
    """A load or a read in a turn that a task notification started, after the answering result, proves nothing of the answer; in the user's own later turn it does (the control)."""
    tool = [say.skill("t1", "cf"), say.answer("t1")]
    slash = [say.replay(say.tags("cf"))]
    read = [say.call("t2", "Read", READ), say.answer("t2", "1\tx")]
    noted = say.result(origin={"kind": "task-notification"})
    wanted = Requirement(names=("cf",))
    for load, code in ((tool, "skill-failed"), (slash, "skill-absent")):
        late = say.parse(say.init(), say.text(), say.result(), *load, noted)
        assert judge_skill(late, wanted, None).code == code
        assert judge_skill(late, wanted, _wire("tool" if load is tool else "slash")).code == "witnesses-disagree"
        own = say.parse(say.init(), say.text(), say.result(), *load, say.text(mid="msg_2"), say.result())
        assert judge_skill(own, wanted, None).state == "ran"
        again = say.parse(say.init(), *load, say.result(), say.skill("t9", "cf"), say.answer("t9"), noted)
        assert judge_skill(again, wanted, None).state == "ran"
    assert judge_skill(say.parse(say.init(), *slash, *read, say.result(), noted), UNIT, None).state == "ran"
    assert judge_skill(say.parse(say.init(), *slash, say.result(), *read, noted), UNIT, None).code == "skill-absent"
