"""Readers of what a run leaves: transcripts, streams, requests, attempts.

Boundary: as targets.py. Not here: documents that people write (documents.py), bytes on a connection (wire.py).
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutate import Form, mutate
from tests.fuzz.samples import attempts, small_attempts, transcripts
from tests.fuzz.target import Read


def read_transcript() -> Read:
    from runner.claude.case import Case
    from runner.claude.evidence import Requirement, judge_skill
    from runner.claude.outcome import classify
    from runner.claude.row import attempt_row
    from runner.claude.transcript import TranscriptParser

    requirement = Requirement.parse("workflow")

    def read(data: bytes) -> None:
        parser = TranscriptParser()
        parser.feed(data[: len(data) // 2])
        parser.feed(data[len(data) // 2 :])
        facts = parser.close()
        case = Case(transcript=facts, skill=judge_skill(facts, requirement, None))
        json.dumps(attempt_row(case, classify(case)), allow_nan=False)

    return read


def read_canonical_transcript() -> Read:
    from runner.claude.canonical_transcript import canonical_events, compare_events

    kept = canonical_events(transcripts()[0])
    return lambda data: compare_events(kept, canonical_events(data))


def read_seen() -> Read:
    from runner.grade.metadata import read_seen

    return lambda data: json.dumps([call.as_json() for call in read_seen(data).tool_calls])


def read_timeline() -> Read:
    from runner.report.bounds import SHORT
    from runner.report.timeline import read_timeline

    return lambda data: read_timeline(data, SHORT, {})


def read_line() -> Read:
    from runner.claude.lines import decode_line

    return decode_line


def read_sse() -> Read:
    from runner.gate.sse import parse_sse

    return parse_sse


def read_message() -> Read:
    from runner.gate.exchange import Exchange, Request, Response
    from runner.gate.message import read_message
    from runner.gate.usage import UsageMeter

    encodings = ("", "gzip", "deflate", "zstd", "br", "x")

    def read(data: bytes) -> None:
        encoding = encodings[zlib.crc32(data) % len(encodings)] if zlib.crc32(data) % 3 == 0 else ""
        headers = (("content-type", "text/event-stream"), ("content-encoding", encoding))
        request = Request(method="POST", target="/v1/messages", body=b"{}")
        read_message(
            Exchange(
                seq=1,
                kind="inference",
                request=request,
                response=Response(status=200, headers=headers, body=data, chunks=(len(data),)),
            )
        )
        for streamed in (True, False):
            meter = UsageMeter(event_stream=streamed)
            meter.feed(data)
            meter.close()

    return read


def read_request_body() -> Read:
    from runner.claude.evidence import Requirement
    from runner.claude.wire import wire_evidence
    from runner.gate.exchange import Exchange, Request
    from runner.gate.policy import RequestHead, decide_body
    from runner.gate.settings import GateSettings

    settings = GateSettings()
    requirement = Requirement.parse("cf")

    def read(data: bytes) -> None:
        head = RequestHead(
            "POST", "/v1/messages", (1, 1), (("Host", "api.anthropic.com"), ("Content-Length", str(len(data))))
        )
        decide_body(head, data, settings)
        wire_evidence(
            (Exchange(seq=1, kind="inference", request=Request(method="POST", target="/v1/messages", body=data)),),
            requirement,
        )

    return read


def read_manifest() -> Read:
    from runner.bundle.format import check_manifest, parse_manifest

    return lambda data: check_manifest(parse_manifest(data))


def with_file(read: Callable[[Path], object]) -> Read:
    """Give a reader of files one in memory."""
    fd = os.memfd_create("fuzz")
    path = Path(f"/proc/{os.getpid()}/fd/{fd}")

    def whole(data: bytes) -> None:
        os.ftruncate(fd, 0)
        os.pwrite(fd, data, 0)
        read(path)

    return whole


def read_bundle() -> Read:
    from runner.bundle.reader import open_attempt, read_manifest

    def read(path: Path) -> None:
        read_manifest(path)
        attempt = open_attempt(path)
        for name in attempt.part_names:
            attempt.part(name)

    return with_file(read)


def read_forged() -> Read:
    """A whole attempt, intact by itself, as a forger would make it: graded, verified, judged and shown."""
    from runner.assess import recheck
    from runner.bundle.reader import open_attempt
    from runner.errors import RunnerError
    from runner.gate.prices import load_prices
    from runner.grade.judge_saved import is_judge, judge_row, recheck_judge
    from runner.grade.subject import load_subject
    from runner.report.bounds import SHORT
    from runner.report.gather import view_attempt

    prices = load_prices()

    def read(path: Path) -> None:
        attempt = open_attempt(path)
        if is_judge(attempt.manifest.summary):
            ways: list[Callable[[], object]] = [lambda: recheck_judge(attempt), lambda: judge_row(attempt, "x")]
        else:
            ways = [lambda: recheck(attempt), lambda: load_subject(path)]
        ways.append(lambda: view_attempt(path, 1, SHORT, prices))
        for way in ways:
            try:
                way()
            except RunnerError as error:
                if error.code == "internal":
                    raise

    return with_file(read)


_FORMS: dict[str, Form] = {".json": "json", ".jsonl": "lines", ".md": "text", ".request": "json"}


def forge(chance: Random) -> bytes:
    fixture, summary, parts = chance.choice(small_attempts())
    name = chance.choice([name for name in parts if not name.endswith(".request") or chance.random() < 0.2])
    form = _FORMS.get(os.path.splitext(name)[1], "bytes")
    changed = {**parts, name: mutate((parts[name],), form, chance)}
    if chance.random() < 0.1:
        del changed[chance.choice(list(changed))]
    if chance.random() < 0.2:
        summary = {name: value for name, value in summary.items() if chance.random() < 0.7}
    return encode(fixture, summary, changed)


def encode(fixture: str, summary: Any, parts: dict[str, bytes]) -> bytes:
    """Return the bytes of an attempt file with these parts, all its digests right."""
    from runner.bundle.format import PartRecord, build_manifest, part_rank
    from runner.bundle.writer import encode_file
    from runner.canonical import sha256_hex

    ranked = sorted((part_rank(name), name) for name in parts)
    records = [PartRecord(name, len(parts[name]), sha256_hex(parts[name])) for _, name in ranked]
    plan = next((record.sha256 for record in records if record.name == "plan.json"), "0" * 64)
    _, data = build_manifest(fixture, plan, "0", summary, records)
    return b"".join(encode_file(data, [(record, parts[record.name]) for record in records]))


@cache
def bundles() -> tuple[bytes, ...]:
    """A small attempt's file."""
    fixture, summary, parts = small_attempts()[0]
    few = {name: part[:2000] for name, part in parts.items() if not name.startswith("exchanges/")}
    return (encode(fixture, summary, few), encode(fixture, summary, parts))


@cache
def manifests() -> tuple[bytes, ...]:
    """Manifests as they lie in files."""
    return tuple(attempt.manifest.to_bytes() for attempt in attempts())


@cache
def lines() -> tuple[bytes, ...]:
    """Lines of transcripts."""
    return tuple(dict.fromkeys(line for data in transcripts() for line in data.splitlines() if len(line) < 4000))[:200]
