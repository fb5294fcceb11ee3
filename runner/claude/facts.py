"""What a transcript says, as frozen values: the only thing that the evidence and the outcome are judged from.

Boundary: pure. Not here: reading bytes (lines.py, transcript.py).
Rules: nothing here is a verdict. Values are msgspec structs, frozen, because one is made for every result and skill call of a stream. Raw JSON values that the agent wrote are kept as they are and are typed ``Any``; whoever shows one escapes it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

CallState = Literal["loaded", "failed", "no-result"]


class Init(msgspec.Struct, frozen=True):
    """The ``system``/``init`` event; of several (one a turn), the first one's fields and everyone's lists."""

    session_id: str = ""
    model: str = ""
    version: str = ""
    skills: frozenset[str] = frozenset()
    plugin_errors: tuple[str, ...] = ()
    """One line each: what ``plugin_errors`` of any init says."""
    failed_servers: tuple[str, ...] = ()
    """MCP servers whose status is not ``connected``, as ``name: status``."""


class Usage(msgspec.Struct, frozen=True):
    """Token counts by the names of the Messages API."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class Result(msgspec.Struct, frozen=True):
    """One ``result`` event. A key that is absent and a key that is null are both None: no rule of A8 tells them apart."""

    subtype: Any = None
    is_error: bool = False
    terminal_reason: Any = None
    api_error_status: Any = None
    stop_reason: Any = None
    text: Any = None
    """The value under ``result``: text, None, or something that is no text."""
    structured_output: Any = None
    local_command: Any = None
    origin_notification: bool = False
    """Whether a background task's notification, not the prompt, started the turn."""
    cost_usd: float | None = None
    num_turns: int | None = None
    usage: Usage = Usage()
    errors: tuple[str, ...] = ()
    permission_denials: int = 0

    @property
    def has_text(self) -> bool:
        """Whether there is text that is not blank."""
        return isinstance(self.text, str) and bool(self.text.strip())

    @property
    def claims_answer(self) -> bool:
        """Whether it says that the turn came to its end and that a model's answer is what it holds."""
        return not self.is_error and self.subtype in (None, "success") and self.local_command is None


class SkillCall(msgspec.Struct, frozen=True):
    """One Skill call, or one slash load, on any thread."""

    name: str | None
    """As called, without a leading ``/``; None where the input names no skill."""
    input: Any
    """The raw input of a Skill call; None for a slash load."""
    way: Literal["tool", "slash"]
    parent: str | None
    """The sub-agent call on whose thread it stands; None on the main thread."""
    state: CallState
    call_id: str = ""
    after_answer: bool = False
    """Loaded only after the answering result, in a turn that a task notification started: the answer knew nothing of it (A2, A8)."""


class Transcript(msgspec.Struct, frozen=True):
    """Everything that is concluded from the bytes of one stream-json transcript."""

    lines: int = 0
    events_seen: int = 0
    last_event_type: str | None = None
    unparsed_lines: int = 0
    unparsed_after_init: int = 0
    unparsed_numbers: tuple[int, ...] = ()
    """The first hundred line numbers of unparsed lines, from 1."""
    cut: bool = False
    """The last line had no end and was unparsable."""
    overflow: bool = False
    """A line was longer than the parser's bound; it was dropped."""
    joined_lines: int = 0
    replaced_characters: int = 0
    format_notes: tuple[str, ...] = ()
    init: Init | None = None
    answering: Result | None = None
    """The last result whose origin is no task notification, else the last one (A8)."""
    results: int = 0
    later_results: int = 0
    cost_usd: float | None = None
    """Of the last result that carries one: the CLI counts it up over the session."""
    background_at_result: bool = False
    skill_calls: tuple[SkillCall, ...] = ()
    """In order; of duplicate ids on one thread only the last (A8)."""
    loaded_above: frozenset[str] = frozenset()
    """Skills of which a harness-made main-thread text says that they are "already loaded above"."""
    replays: int = 0
    """Main-thread user events with ``isReplay: true``."""
    references_read: frozenset[str] = frozenset()
    """Paths with ``/references/`` in them that a main-thread Read call read without an error, before the answering result where there is one."""
    last_text: str | None = None
    """The last non-blank main-thread text by a model other than ``<synthetic>``, up to the answering result where there is one before it: what
    a later turn said, which a task notification started, is no answer to the prompt (A8)."""
    models: tuple[str, ...] = ()
    """Models of main-thread messages in order of first appearance, without ``<synthetic>``."""
    rounds: int = 0
    """Distinct main-thread message ids."""
    own_usage: Usage = Usage()
    """Summed from main-thread messages, each id once."""
    result_usage: Usage = Usage()
    """Summed from the results' ``usage``."""
    compactions: int = 0
    event_notes: tuple[str, ...] = ()
    ledger: bytes | bytearray = b""
    """For tamper.py: see ``ledger.py``."""
    tail: bytes = b""
    """The last bytes of the stream."""
