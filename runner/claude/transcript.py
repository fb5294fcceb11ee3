"""Reads a stream-json transcript as a stream: bytes in, facts out, whatever the bytes (A4, A8, A9, A11).

Boundary: pure. Not here: cutting and decoding lines (lines.py), reading a result or an init (readings.py), judging (evidence.py, outcome.py).
Rules: how the stream was cut into chunks changes nothing. Memory is bounded by the longest line plus a small record per main-thread block.
Content comes from ``assistant``, ``user`` and ``result`` events only; ``stream_event`` is counted and otherwise ignored (case P19).
Of duplicate call ids on one thread the last call wins, and a result counts for the call before it only (A8, seed 000).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import structs

from runner.claude import ledger
from runner.claude.facts import Init, Result, SkillCall, Transcript, Usage
from runner.claude.lines import BOM, JSON_BLANKS, Event, LineSplitter, decode_line, decode_object
from runner.claude.names import READ_TOOL, SKILL_TOOL, called_name, command_tags, good_result, loaded_above, whole_text
from runner.claude.readings import (
    BackgroundTasks,
    Tally,
    add_usage,
    bounded_json,
    read_init,
    read_result,
    read_usage,
    says_nothing_new,
    thread_of,
)

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is the error ``output-limit`` (A11)."""
SYNTHETIC = "<synthetic>"
"""The pseudo-model under which the CLI writes its own error texts (case P21)."""

_OPEN, _CLOSE = b"{}"
_TAIL_BYTES = 2048
_KNOWN_BLOCKS = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document", "server_tool_use"}
)
_KEPT_NUMBERS = 100
_KEPT_IDS = 50_000
"""Beyond so many messages, repeats of an id are told by adjacency only; it touches nothing but the parser's own counts."""


class TranscriptParser:
    """Feed it bytes as they come; ask the live properties at any time; ``close`` gives the facts.

    ``on_unparsed(line_number)`` is called for each unparsable line as it is dropped, ``on_main_text(text)`` for each non-blank main-thread text.
    ``keep_ledger=False`` leaves out the record that only the tamper checks need.
    """

    def __init__(
        self,
        max_line_bytes: int = MAX_LINE_BYTES,
        *,
        on_unparsed: Callable[[int], None] | None = None,
        on_main_text: Callable[[str], None] | None = None,
        keep_ledger: bool = True,
    ) -> None:
        self._splitter = LineSplitter(max_line_bytes)
        self._on_unparsed = on_unparsed
        self._on_main_text = on_main_text
        self._keep_ledger = keep_ledger
        self._tail = b""
        self._lines = self._events = self._blank = self._crlf = 0
        self._bom = False
        self._last_type: str | None = None
        self._unparsed = self._unparsed_after_init = self._joined = self._replaced = self._surrogate_lines = 0
        self._unparsed_numbers: list[int] = []
        self._cut = False
        self._init: Init | None = None
        self._init_event = Event()
        self._answering: Result | None = None
        self._results = self._later_results = 0
        self._cost: float | None = None
        self._background = BackgroundTasks()
        self._background_at_result = False
        self._skills: dict[tuple[str | None, str, str | int], SkillCall] = {}
        """By thread, kind (``call``, ``anonymous``, ``slash``) and call id, number or name: no id that was made up can touch another kind."""
        self._loaded_at_answer: frozenset[tuple[str | None, str, str | int]] = frozenset()
        self._anonymous = 0
        self._reads: dict[str, str] = {}
        self._references: set[str] = set()
        self._references_at_answer: frozenset[str] = frozenset()
        self._replays = 0
        self._text: str | None = None
        self._text_at_answer: str | None = None
        self._loaded_above: set[str] = set()
        self._models: dict[str, None] = {}
        self._ids: set[int] = set()
        self._rounds = 0
        self._last_id: int | None = None
        self._own_usage = Usage()
        self._result_usage = Usage()
        self._odd: Counter[str] = Counter()
        self._tally = Tally()
        self._ledger = bytearray()

    @property
    def first_event_seen(self) -> bool:
        """Whether any JSON object has come: the CLI has started."""
        return self._events > 0

    @property
    def result_seen(self) -> bool:
        """Whether any ``result`` event has come."""
        return self._results > 0

    @property
    def background_running(self) -> bool:
        """Whether a background task was running when the stream last said something about them."""
        return self._background.running

    @property
    def overflow(self) -> bool:
        """Whether a line was longer than the bound."""
        return self._splitter.overflow

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        if not chunk:
            return
        self._tail = chunk[-_TAIL_BYTES:] if len(chunk) >= _TAIL_BYTES else (self._tail + chunk)[-_TAIL_BYTES:]
        take = self._event
        for line in self._splitter.feed(chunk):
            self._lines += 1
            if (
                line and line[0] == _OPEN and line[-1] == _CLOSE and line.isascii()
            ):  # nearly every line: one object, nothing odd
                event = decode_object(line)
                if event is not None:
                    take(event)
                    continue
            self._line(line, ended=True)

    def close(self) -> Transcript:
        """Take the end of the stream and return the facts."""
        for line in self._splitter.close():
            self._lines += 1
            self._line(line, ended=False)
        return Transcript(
            lines=self._lines,
            events_seen=self._events,
            last_event_type=self._last_type,
            unparsed_lines=self._unparsed,
            unparsed_after_init=self._unparsed_after_init,
            unparsed_numbers=tuple(self._unparsed_numbers),
            cut=self._cut,
            overflow=self._splitter.overflow,
            joined_lines=self._joined,
            replaced_characters=self._replaced,
            format_notes=tuple(self._format_notes()),
            init=self._init,
            answering=self._answering,
            results=self._results,
            later_results=self._later_results,
            cost_usd=self._cost,
            background_at_result=self._background_at_result,
            skill_calls=tuple(self._in_time(key, call) for key, call in self._skills.items()),
            loaded_above=frozenset(self._loaded_above),
            replays=self._replays,
            references_read=frozenset(self._references) if self._answering is None else self._references_at_answer,
            last_text=self._text if self._text_at_answer is None else self._text_at_answer,
            models=tuple(self._models),
            rounds=self._rounds,
            own_usage=self._own_usage,
            result_usage=self._result_usage,
            compactions=self._tally.count("compact_boundary"),
            event_notes=(*_odd_notes(self._odd), *self._tally.notes()),
            ledger=self._ledger,
            tail=self._tail,
        )

    def _line(self, line: bytes | None, *, ended: bool) -> None:
        if line is not None:
            if self._lines == 1 and line.startswith(BOM):
                line = line[len(BOM) :]
                self._bom = True
            if line.endswith(b"\r"):
                line = line[:-1]
                self._crlf += 1
            if not line.strip(JSON_BLANKS):
                self._blank += 1
                return
        decoded = None if line is None else decode_line(line)
        if decoded is None:
            self._drop(cut=not ended)
            return
        self._replaced += decoded.replaced
        self._surrogate_lines += decoded.lone_surrogates
        self._joined += len(decoded.events) > 1
        for event in decoded.events:
            self._event(event)

    def _drop(self, *, cut: bool) -> None:
        self._unparsed += 1
        self._unparsed_after_init += self._init is not None
        self._cut = self._cut or cut
        if len(self._unparsed_numbers) < _KEPT_NUMBERS:
            self._unparsed_numbers.append(self._lines)
        if self._on_unparsed is not None:
            self._on_unparsed(self._lines)

    def _event(self, event: Event) -> None:
        self._events += 1
        kind = event.type
        if kind == "assistant":
            self._assistant(event)
        elif kind == "user":
            self._user(event)
        elif kind == "system":
            self._system(event)
        elif kind == "result":
            self._take_result(read_result(event))
        elif kind != "stream_event":
            self._count_odd("event type", kind)
        self._last_type = kind if isinstance(kind, str) else None

    def _system(self, event: Event) -> None:
        if event.subtype == "init":
            if self._init is None or not says_nothing_new(event, self._init_event):
                self._init = read_init(event, self._init)
                self._init_event = event
            return
        self._background.take(event)
        self._tally.take(event)

    def _take_result(self, result: Result) -> None:
        self._results += 1
        self._result_usage = add_usage(self._result_usage, result.usage)
        if self._keep_ledger and result.claims_answer and result.has_text and result.structured_output is None:
            self._ledger += ledger.answer_record(self._events, result.text)
        if result.cost_usd is not None:
            self._cost = result.cost_usd
        if result.origin_notification and self._answering is not None and not self._answering.origin_notification:
            self._later_results += 1
        else:
            self._answering = result
            self._text_at_answer = self._text
            self._references_at_answer = frozenset(self._references)
            self._loaded_at_answer = frozenset(key for key, call in self._skills.items() if call.state == "loaded")
            self._later_results = 0
        self._background_at_result = self._background.running

    def _assistant(self, event: Event) -> None:
        message = event.message
        if not isinstance(message, dict):
            return
        parent = event.parent_tool_use_id
        if parent is not None:
            parent = thread_of(parent)
        model, message_id = message.get("model"), message.get("id")
        ours = parent is None and model != SYNTHETIC
        key = ledger.NO_DIGEST
        if ours:
            self._count_message(message_id, model, message.get("usage"))
            if self._keep_ledger and isinstance(message_id, str):
                key = ledger.digest(message_id)
        content = message.get("content")
        for block in (
            [{"type": "text", "text": content}]
            if isinstance(content, str)
            else content
            if isinstance(content, list)
            else ()
        ):
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "text":
                text = block.get("text")
                if ours and isinstance(text, str) and text.strip():
                    self._main_text(text, key)
            elif kind == "tool_use":
                self._call(block, parent)
                if ours and self._keep_ledger:
                    self._ledger += ledger.call_record(self._events, key, block.get("id"), block.get("name"))
            elif not isinstance(kind, str) or kind not in _KNOWN_BLOCKS:
                self._count_odd("content block", kind)

    def _main_text(self, text: str, key: ledger.Digest) -> None:
        self._text = text
        if self._keep_ledger:
            self._ledger += ledger.text_record(self._events, key, text)
        if self._on_main_text is not None:
            self._on_main_text(text)

    def _call(self, block: dict[str, Any], parent: str | None) -> None:
        name, call_id = block.get("name"), block.get("id")
        known_id = call_id if isinstance(call_id, str) else None
        if known_id is not None:
            if self._skills:
                self._skills.pop((parent, "call", known_id), None)
            if parent is None and self._reads:
                self._reads.pop(known_id, None)
        if name == SKILL_TOOL:
            raw = block.get("input")
            call = SkillCall(called_name(raw), bounded_json(raw), "tool", parent, "no-result", known_id or "")
            if known_id is not None:
                self._skills[(parent, "call", known_id)] = call
            else:
                self._anonymous += 1
                self._skills[(parent, "anonymous", self._anonymous)] = call
        elif name == READ_TOOL and parent is None and known_id is not None and isinstance(block.get("input"), dict):
            path = block["input"].get("file_path")
            if isinstance(path, str) and "/references/" in path:
                self._reads[known_id] = path

    def _user(self, event: Event) -> None:
        message = event.message
        content = message.get("content") if isinstance(message, dict) else None
        parent = event.parent_tool_use_id
        if parent is not None:
            parent = thread_of(parent)
        if event.is_replay is True and parent is None:
            self._replays += 1
            self._slash_load(whole_text(content))
        if isinstance(content, list):
            for block in content:
                kind = block.get("type") if isinstance(block, dict) else None
                if kind == "tool_result":
                    self._tool_result(block, event.tool_use_result, parent)
                elif kind == "text" and parent is None and event.is_synthetic is True:
                    self._already_loaded(block.get("text"))

    def _in_time(self, key: tuple[str | None, str, str | int], call: SkillCall) -> SkillCall:
        """Mark a load that came after the answering result: a turn that a task notification started loads nothing for the answer."""
        late = self._answering is not None and call.state == "loaded" and key not in self._loaded_at_answer
        return structs.replace(call, after_answer=True) if late else call

    def _slash_load(self, text: str | None) -> None:
        name = command_tags(text) if text is not None else None
        if name is not None:
            self._skills.setdefault((None, "slash", name), SkillCall(name, None, "slash", None, "loaded"))

    def _already_loaded(self, text: Any) -> None:
        name = loaded_above(text) if isinstance(text, str) else None
        if name is not None and len(self._loaded_above) < _KEPT_NUMBERS:
            self._loaded_above.add(name[:200])

    def _tool_result(self, block: dict[str, Any], tool_use_result: Any, parent: str | None) -> None:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str):
            return
        call = self._skills.get((parent, "call", call_id)) if self._skills else None
        if call is not None:
            state = "loaded" if good_result(block, tool_use_result, call.name) else "failed"
            self._skills[(parent, "call", call_id)] = SkillCall(call.name, call.input, "tool", parent, state, call_id)  # type: ignore[arg-type]
        if parent is None:
            path = self._reads.get(call_id)
            if path is not None and not block.get("is_error"):
                self._references.add(path)
            if self._keep_ledger:
                self._ledger += ledger.result_record(self._events, call_id, block.get("content"))

    def _count_message(self, message_id: Any, model: Any, usage: Any) -> None:
        if isinstance(model, str) and model not in self._models and len(self._models) < _KEPT_NUMBERS:
            self._models[model[:200]] = None
        if not isinstance(message_id, str):
            return
        key = hash(message_id)
        if key == self._last_id or key in self._ids:
            return
        self._last_id = key
        self._rounds += 1
        if len(self._ids) < _KEPT_IDS:
            self._ids.add(key)
        if isinstance(usage, dict):
            self._own_usage = add_usage(self._own_usage, read_usage(usage))

    def _count_odd(self, what: str, name: Any) -> None:
        label = f"unknown {what} {name[:80] if isinstance(name, str) else type(name).__name__!r}"
        if label in self._odd or len(self._odd) < _KEPT_NUMBERS:
            self._odd[label] += 1

    def _format_notes(self) -> list[str]:
        """Say where the bytes are not as the CLI writes them (A9, case P25)."""
        facts = (
            (self._bom, "the file begins with a byte-order mark"),
            (self._crlf, f"{self._crlf} lines end in CR LF"),
            (self._blank, f"{self._blank} blank lines"),
            (self._joined, f"{self._joined} joined lines (several objects on one)"),
            (self._replaced, f"{self._replaced} undecodable characters read as U+FFFD"),
            (self._surrogate_lines, f"{self._surrogate_lines} lines with lone surrogates"),
            (
                self._unparsed,
                f"{self._unparsed} unparsable lines dropped, {self._unparsed_after_init} of them after init",
            ),
        )
        return [text for count, text in facts if count]


def _odd_notes(odd: Counter[str]) -> list[str]:
    return [f"{label} ×{count}" for label, count in odd.items()]
