"""Every reader of foreign bytes, as one table: what it is given, what it may raise, and valid samples to start from.

Boundary: reads the repository's own samples; the readers of files are given a file in memory. Not here: the inputs (mutate.py), the counting (__main__.py).
Rules: ``read`` does with the value what the product does with it, as far as that costs no process. A reader that is new goes into ``TARGETS``: tests/fuzz does the rest.
A coverage-guided fuzzer can use the table too: ``one(name)`` is a function of bytes that raises for a defect and for nothing else (docs/robustness.md).
"""

from __future__ import annotations

from tests.fuzz import documents, evidence, samples, wire
from tests.fuzz.target import Reader, Target


def one(name: str) -> Reader:
    """Return the reader of a target by its name."""
    return Reader(next(target for target in TARGETS if target.name == name))


def _error(name: str) -> tuple[type[BaseException], ...]:
    from runner import errors

    found = getattr(errors, name)
    assert issubclass(found, BaseException)
    return (found,)


def _bundle_errors() -> tuple[type[BaseException], ...]:
    from runner.errors import BundleCorrupt, BundleUnsupported

    return (BundleCorrupt, BundleUnsupported)


def _profile_errors() -> tuple[type[BaseException], ...]:
    from runner.errors import GraderFault
    from runner.grade.host import Fault

    return (GraderFault, Fault)


def _json_and(name: str) -> tuple[type[BaseException], ...]:
    return (*_error(name), ValueError, RecursionError)  # of json.loads, before the reader


def _no_json() -> tuple[type[BaseException], ...]:
    return (ValueError, RecursionError)


def _spec_errors() -> tuple[type[BaseException], ...]:
    from sandbox.errors import SpecInvalid

    return (SpecInvalid,)


def _answer_errors() -> tuple[type[BaseException], ...]:
    from runner.grade.judge_answer import AnswerRefused

    return (AnswerRefused,)


def _wire_errors() -> tuple[type[BaseException], ...]:
    from runner.claude.wirefile import WireFileInvalid

    return (WireFileInvalid,)


def _lock_errors() -> tuple[type[BaseException], ...]:
    from runner.errors import ToolchainError

    return (ToolchainError,)


def _value_errors() -> tuple[type[BaseException], ...]:
    return (ValueError,)


TARGETS: tuple[Target, ...] = (
    Target("transcript", "lines", samples.transcripts, evidence.read_transcript),
    Target("transcript-line", "json", evidence.lines, evidence.read_line),
    Target("transcript-canonical", "lines", samples.transcripts, evidence.read_canonical_transcript),
    Target("transcript-seen", "lines", samples.transcripts, evidence.read_seen),
    Target("transcript-timeline", "lines", samples.transcripts, evidence.read_timeline),
    Target("sse", "text", samples.streams, evidence.read_sse),
    Target("message", "text", samples.streams, evidence.read_message),
    Target("encoded-body", "bytes", documents.encoded, documents.read_encoded),
    Target("request-body", "json", samples.small_requests, evidence.read_request_body),
    Target("http-head", "text", wire.heads, wire.read_http),
    Target("manifest", "json", evidence.manifests, evidence.read_manifest, _bundle_errors),
    Target("bundle", "bytes", evidence.bundles, evidence.read_bundle, _bundle_errors),
    Target("attempt-forged", "bytes", evidence.bundles, evidence.read_forged, _bundle_errors, evidence.forge, grows=False),
    Target("attempt-version-1", "json", lambda: samples.files("fixtures/attempts/version-1.attempt"), documents.read_version1, _bundle_errors),
    Target("exchange-index", "json", lambda: samples.parts("exchanges.json"), documents.read_index, lambda: (*_bundle_errors(), ValueError)),
    Target("fixture", "json", lambda: samples.files("fixtures/*.json"), documents.read_fixture, lambda: _error("FixtureInvalid")),
    Target("contract", "json", lambda: samples.files("fixtures/contracts/*.json"), documents.read_contract, lambda: _error("ContractInvalid")),
    Target("simulation", "json", documents.simulations, documents.read_simulation, lambda: _json_and("FixtureInvalid")),
    Target("script", "json", lambda: samples.files("fixtures/scripts/*.json"), documents.read_script, lambda: _error("ScriptInvalid")),
    Target("skill-text", "text", samples.skills, documents.read_skill),
    Target("simulator-command", "text", lambda: documents.COMMANDS, documents.read_command),
    Target("profile-answer", "json", lambda: documents.PROFILE_ANSWERS, documents.read_profile_answer, _profile_errors),
    Target("grader-reply", "json", documents.replies, documents.read_reply, lambda: _error("GraderFault")),
    Target("promptfoo-results", "json", documents.promptfoo_results, documents.read_promptfoo_results, lambda: _json_and("GraderFault")),
    Target("judge-answer", "json", lambda: documents.JUDGE_ANSWERS, documents.read_judge_answer, _answer_errors),
    Target("evaluation", "json", documents.evaluations, documents.read_evaluation, _no_json),
    Target("wire-file", "lines", samples.wire_files, documents.read_wire_file, _wire_errors),
    Target("json-strict", "json", lambda: samples.files("fixtures/*.json"), documents.read_strict, _value_errors),
    Target("json-canonical", "json", lambda: samples.parts("plan.json", "sandbox.json"), documents.read_canonical, _value_errors),
    Target("prices", "json", lambda: samples.files("runner/gate/prices.json"), documents.read_prices, lambda: _error("GateError")),
    Target("toolchain-lock", "json", lambda: samples.files("sandbox/toolchain/toolchain.json"), documents.read_lock, _lock_errors),
    Target("pins", "json", lambda: documents.PINS, documents.read_pins, _no_json),
    Target("rootfs-description", "json", lambda: documents.DESCRIPTIONS, documents.read_description, _spec_errors),
    Target("closure-graph", "text", lambda: documents.GRAPHS, documents.read_graph, _value_errors),
    Target("signature", "text", documents.signatures, documents.read_signature, _value_errors),
    Target("bwrap-status", "lines", lambda: documents.STATUS, documents.read_status),
    Target("bwrap-stderr", "text", lambda: documents.COMPLAINTS, documents.read_complaint),
    Target("uid-map", "text", lambda: documents.UID_MAPS, documents.read_uid_map),
    Target("runner-request", "json", lambda: documents.RUNNER_REQUESTS, documents.read_runner_request, documents.runner_errors),
)  # fmt: skip
"""All of them."""
