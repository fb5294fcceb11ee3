"""The envelope of a fixture: which fields there are and what each may hold (B1–B5, DESIGN "Decided").

Boundary: pure. Not here: reading a file, and the rules that need more than one field (fixture.py).
Rules: strict, frozen, no unknown key. ``rubric`` and ``expect`` are for the judge and the checks only (B3): nothing that makes a worker's plan
may read them. A new pattern needs its words in ``IN_WORDS``.
"""

from __future__ import annotations

import hashlib
import json
import re
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    StringConstraints,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from runner.errors import SettingInvalid

_SLUG = r"^[a-z0-9]+(-[a-z0-9]+)*$"
_PROFILE = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_FILE = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_SKILL = rf"^{_NAME}$"
_UNIT = rf"^{_NAME}(/references/{_FILE}\.md)?$"
_REFERENCE = rf"^{_NAME}(/{_FILE})*/{_FILE}\.md$"
_MODEL = r"^[A-Za-z0-9][A-Za-z0-9._:@\[\]-]{0,127}$"
_USD = r"^(0|[1-9][0-9]{0,4})(\.[0-9]{1,6})?$"
_TOOL = r"^[a-z][a-z0-9_]{0,63}$"
_LINE = r"^[^\x00-\x1f\x7f\u0085\u2028\u2029]+$"
_TEXT = r"\S"
_METRIC = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$"

IN_WORDS = {
    _SLUG: "lowercase letters, digits and separating hyphens",
    _PROFILE: "a profile's id: lowercase letters, digits and separating hyphens, a letter first",
    _SKILL: "a skill's name: letters, digits, '-' and '_'",
    _UNIT: "a skill name, or one <skill>/references/<file>.md beneath the skills root",
    _REFERENCE: "a relative Markdown path beneath the skills root, no part of which begins with a dot",
    _MODEL: "a model's alias or name",
    _USD: 'a decimal string such as "2" or "0.50"',
    _TOOL: "the name of a provider-executed tool, such as web_search",
    _LINE: "one line without control characters",
    _TEXT: "text that is not blank",
    _METRIC: "a name of letters, digits, '.', '_', ':', '/' and '-'",
}
"""What each pattern of the envelope asks for, as a person reads it."""

Slug = Annotated[str, StringConstraints(pattern=_SLUG, max_length=64)]
ProfileId = Annotated[str, StringConstraints(pattern=_PROFILE, max_length=64)]
SkillName = Annotated[str, StringConstraints(pattern=_SKILL)]
Unit = Annotated[str, StringConstraints(pattern=_UNIT)]
ReferencePath = Annotated[str, StringConstraints(pattern=_REFERENCE, max_length=256)]
ModelName = Annotated[str, StringConstraints(pattern=_MODEL)]
Usd = Annotated[str, StringConstraints(pattern=_USD)]
ToolName = Annotated[str, StringConstraints(pattern=_TOOL)]
Line = Annotated[str, StringConstraints(pattern=_LINE, min_length=1, max_length=2000)]
Metric = Annotated[str, StringConstraints(pattern=_METRIC)]
Invocation = Literal["routing", "slash", "direct"]
JsonObject = dict[str, JsonValue]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


def _true(value: bool) -> bool:
    if not value:
        raise PydanticCustomError("not_synthetic", "must be true: only synthetic cases are kept here")
    return value


class Criterion(_Strict):
    """One line of the rubric, for the judge."""

    id: Slug
    criterion: Annotated[str, StringConstraints(pattern=_TEXT, max_length=4000)]


class Permissions(_Strict):
    """Permission rules as the CLI's settings file spells them, such as ``Skill(workflow)`` or ``Bash(ls:*)``."""

    allow: tuple[Line, ...] = ()
    deny: tuple[Line, ...] = ()


class LaunchSettings(_Strict):
    """The part of the CLI's settings that a fixture may set; handed over by ``--settings``."""

    permissions: Permissions = Permissions()


class WorkerSettings(_Strict):
    """How the worker of this fixture is run; None means the default of the plan."""

    model: ModelName | None = None
    max_usd: Usd | None = None
    max_requests: Annotated[int, Field(ge=1, le=10_000)] | None = None
    max_parallel: Annotated[int, Field(ge=1, le=64)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Tokens in and out, over all requests of the run."""
    timeout_s: Annotated[int, Field(ge=1, le=86_400)] | None = None
    provider_tools: tuple[ToolName, ...] = ()
    """Provider-executed tools that the gate lets through, by name; none by default."""
    output_schema: JsonObject | None = None
    """JSON schema of a structured answer (``--json-schema``)."""
    settings: LaunchSettings | None = None


class JudgeSettings(_Strict):
    """How the judge of this fixture is run; None means the default."""

    model: ModelName | None = None
    max_usd: Usd | None = None
    timeout_s: Annotated[int, Field(ge=1, le=86_400)] | None = None


def check_settings(*, model: str | None = None, max_usd: str | None = None, timeout_s: int | None = None) -> None:
    """Hold a caller's choice to what a fixture may say; None is no choice, an empty text is no model and no amount.

    Raises: SettingInvalid.
    """
    try:
        JudgeSettings(model=model, max_usd=max_usd, timeout_s=timeout_s)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        words = IN_WORDS.get(str(found.get("ctx", {}).get("pattern")), found["msg"])
        raise SettingInvalid(f"{found['input']!r} cannot be used: {words}", where=str(found["loc"][0])) from error
    if max_usd is not None and Decimal(max_usd) == 0:
        raise SettingInvalid("a ceiling of 0 allows no request", where="max_usd", hint="name an amount above 0")


_WITH_VALUE = frozenset(
    (
        *(
            "contains",
            "contains-all",
            "contains-any",
            "icontains",
            "icontains-all",
            "icontains-any",
            "equals",
            "starts-with",
        ),
        *("regex", "levenshtein", "bleu", "gleu", "rouge-n", "word-count", "javascript", "llm-rubric", "skill-used"),
        *("trajectory:tool-used", "trajectory:tool-sequence", "trajectory:tool-args-match", "trajectory:step-count"),
        *("trace-span-count", "finish-reason"),
    )
)
_WITHOUT_VALUE = frozenset(
    (
        *("contains-html", "contains-json", "contains-xml", "is-html", "is-json", "is-xml", "is-refusal"),
        *("cost", "latency", "trace-error-spans"),
    )
)
OFFLINE_TYPES = _WITH_VALUE | _WITHOUT_VALUE
"""Promptfoo's checks that need no network, process, further package or model; each may be negated with ``not-``. ``llm-rubric`` is answered by our judge."""
_UNSAFE_VALUE = re.compile(r"\s*(?:file://|package:)", re.IGNORECASE)


def _offline(value: str) -> str:
    if value.removeprefix("not-") not in OFFLINE_TYPES:
        raise PydanticCustomError(
            "not_offline",
            "this check cannot be had offline: it is unknown, or needs a model, a network, another program or another package",
        )
    return value


def _harmless(value: JsonValue) -> JsonValue:
    """Refuse what Promptfoo would load from a file, a package or a program, and what says nothing."""
    if value in ("", [], {}):
        raise PydanticCustomError("vacuous", "an empty value makes a check that says nothing")
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str) and _UNSAFE_VALUE.match(part):
            raise PydanticCustomError(
                "unsafe_value", "a value is literal; it names no file, package, program or address"
            )
        pending += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return value


class Assertion(_Strict):
    """One of Promptfoo's own checks over the saved answer (B10): its type, and what it compares with, taken literally."""

    type: Annotated[str, AfterValidator(_offline)]
    value: Annotated[JsonValue, AfterValidator(_harmless)] = None
    """For ``llm-rubric`` the id or the whole text of a criterion of the rubric; the judge sees no other."""
    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = None
    metric: Metric | None = None
    """The check's name; ``assert-<number>-<type>`` where it is not given."""

    @property
    def base_type(self) -> str:
        """The type without a leading ``not-``."""
        return self.type.removeprefix("not-")

    @property
    def lacks_value(self) -> bool:
        """Whether the type compares with a value and there is none."""
        return self.value is None and self.base_type in _WITH_VALUE

    @property
    def negated(self) -> bool:
        """Whether the type begins with ``not-``."""
        return self.type.startswith("not-")


class Fixture(_Strict):
    """The envelope of one case."""

    id: Slug
    synthetic: Annotated[bool, AfterValidator(_true)]
    profile: ProfileId
    skill: Unit
    references: tuple[ReferencePath, ...] = ()
    """More Markdown files of the skill tree that the unit needs."""
    input: JsonObject
    """Every fact that the worker may use (B3)."""
    rubric: Annotated[tuple[Criterion, ...], Field(min_length=1)]
    recipes: tuple[SkillName, ...] = ()
    """Test recipes beside the fixtures; each is installed as a skill (B5)."""
    expect: JsonObject = {}
    """What the profile's checks compare with; the profile says what it holds."""
    assertions: Annotated[tuple[Assertion, ...], Field(alias="assert", min_length=1)] = ()
    """Promptfoo's own checks beside the profile's; the field is called ``assert`` in the file."""
    simulation: JsonObject | None = None
    invocation: Invocation | None = None
    task: Line | None = None
    """The one sentence that asks."""
    worker: WorkerSettings = WorkerSettings()
    judge: JudgeSettings = JudgeSettings()
    script: Slug | None = None
    """The scripted provider's script; the fixture's id where it is not given."""

    _source: bytes = PrivateAttr(default=b"")

    def with_source(self, source: bytes) -> Fixture:
        """Return this fixture, remembering the bytes that it was parsed from."""
        copy = self.model_copy()
        copy._source = source
        return copy

    @property
    def source(self) -> bytes:
        """The bytes that were parsed."""
        return self._source

    @property
    def sha256(self) -> str:
        """Hex sha256 of the source bytes (B8)."""
        return hashlib.sha256(self._source).hexdigest()

    @property
    def skill_name(self) -> str:
        """The skill under test, without the reference."""
        return self.skill.split("/", 1)[0]

    @property
    def reference(self) -> str | None:
        """The reference under test as a path in its skill (``references/x.md``), or None for a skill unit."""
        return self.skill.split("/", 1)[1] if "/" in self.skill else None

    @property
    def form(self) -> Invocation:
        """How the skill is called: ``invocation``, or its default (routing for a skill name, direct for a reference)."""
        return self.invocation or ("direct" if self.reference else "routing")

    @property
    def script_name(self) -> str:
        """The script of the scripted provider."""
        return self.script or self.id

    def assertion_id(self, number: int) -> str:
        """Return the name under which the result of ``assertions[number]`` stands."""
        assertion = self.assertions[number]
        return assertion.metric or f"assert-{number + 1}-{assertion.type}"

    def criterion_of(self, assertion: Assertion) -> Criterion | None:
        """Return the criterion that an ``llm-rubric`` check names by its id or by its whole text."""
        return next((line for line in self.rubric if assertion.value in (line.id, line.criterion)), None)

    def as_json(self) -> JsonObject:
        """Return the fixture as profiles see it: the JSON object that stands in the source."""
        value: JsonObject = json.loads(self._source)
        return value
