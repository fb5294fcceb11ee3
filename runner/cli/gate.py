"""``hermeval gate``: hold the provider key in a process of its own, and serve runs on a socket.

Boundary: touches the key file, the socket, the terminal. Not here: what is let through (runner/gate/policy.py), ceilings (ledger.py), the way out (upstreams/anthropic.py).
Rules: it is the gate of a run once more, with a plain Unix socket in front: the same policy, the same ledger, the same redaction; only the record keeps no
exchange, since the run's own gate does. Its ceilings are for all runs together, from its start to its end or (``--spend-file``) of a day, however often it was started, and nobody
on the other side of the socket can raise them. It ends by a signal (exit status 2), or because it failed.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import click

from runner.cli.answer import print_answer
from runner.cli.paths import NamedPath
from runner.cli.provider import read_key_file
from runner.errors import GateUnavailable, SettingInvalid

MOST_HELD = 64 * 1024 * 1024
"""Bytes of request bodies under way, over all connections: two of the largest. Parsed, a contrived body takes some twenty times its length."""
ACTIVATED_FD = 3
"""The first descriptor that systemd passes to a socket-activated service (sd_listen_fds(3))."""


@click.command("gate", short_help="Hold the key for runs in other processes.")
@click.option("--listen", type=NamedPath(), metavar="SOCKET", help="Unix socket to make and serve.")
@click.option("--activated", is_flag=True, help="Serve the socket that systemd passes, in place of --listen.")
@click.option("--key-file", type=NamedPath(), metavar="FILE", required=True, help="File with the provider key.")
@click.option("--base-url", metavar="URL", help="Address of the live provider; default: Anthropic's.")
@click.option("--ca-file", type=NamedPath(), metavar="FILE", help="PEM file to trust beside the system's.")
@click.option("--max-usd", default="20", show_default=True, metavar="USD", help="Spend ceiling of all runs together.")
@click.option(
    "--spend-file",
    type=NamedPath(),
    metavar="FILE",
    help="Keep the account of the day (UTC) there, so that ceilings are a day's, whatever ends this process. Default: from start to end.",
)
@click.option(
    "--max-requests",
    type=click.IntRange(0, 10_000_000),
    default=5_000,
    show_default=True,
    metavar="N",
    help="Requests.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(0, 10**12),
    default=100_000_000,
    show_default=True,
    metavar="N",
    help="Tokens of all kinds.",
)
@click.option(
    "--parallel", type=click.IntRange(1, 256), default=16, show_default=True, metavar="N", help="At one time."
)
@click.option("--model", "models", multiple=True, metavar="NAME", help="Serve only this model; may be repeated.")
@click.option(
    "--allow-provider-tool",
    "tools",
    multiple=True,
    metavar="NAME",
    help="Let through what the provider itself executes, where a fixture names it too; may be repeated.",
)
def command(listen: Path | None, activated: bool, **options: Any) -> int:
    """Serve runs that say --provider anthropic --base-url unix://SOCKET, and add the key on the way out."""
    from runner.cli.interrupt import INTERRUPTS
    from runner.gate.prices import load_prices
    from runner.gate.server import Gate
    from runner.gate.settings import Ceilings, GateSettings
    from runner.gate.spend import DayLedger, SpendFile
    from runner.gate.upstreams.anthropic import DEFAULT_BASE_URL, GATE_SETTINGS, AnthropicUpstream, socket_path

    key = read_key_file(options["key_file"])
    base_url = DEFAULT_BASE_URL if options["base_url"] is None else options["base_url"]
    if socket_path(base_url) is not None:
        raise SettingInvalid("a gate does not stand in front of another gate", where="--base-url")
    upstream = AnthropicUpstream(key, base_url=base_url, ca_file=options["ca_file"])
    try:
        settings = GateSettings(
            mode=GATE_SETTINGS.mode,
            models=options["models"],
            allow_provider_tools=options["tools"],
            ceilings=Ceilings(
                usd=options["max_usd"],
                requests=options["max_requests"],
                tokens=options["max_tokens"],
                parallel=options["parallel"],
            ),
        )
    except ValueError as error:
        raise SettingInvalid("the spend ceiling is a plain amount like 20 or 2.50", where="--max-usd") from error
    file = None if options["spend_file"] is None else SpendFile(options["spend_file"])
    ledger = None if file is None else DayLedger(settings.ceilings, load_prices(), file)
    gate = Gate(settings, upstream, real_key=key, keep=False, ledger=ledger, most_held=MOST_HELD)
    listener = _listener(listen, activated=activated)
    stopped = threading.Event()
    try:
        with INTERRUPTS.deferred(stopped.set):
            gate.serve(listener)
            click.echo("gate: serving; the key is here and goes nowhere else", err=True)
            while not stopped.wait(0.5):
                if gate.failure is not None:
                    raise GateUnavailable(f"the gate's thread failed: {gate.failure!r}") from gate.failure
    finally:
        if listen is not None:
            listen.unlink(missing_ok=True)
        record = gate.close()
        totals = {
            name: getattr(record, name)
            for name in ("requests", "tokens", "cost_estimate_usd", "key_redactions", "connections_failed", "not_kept")
        }
        print_answer("gate", 2, totals)
    return 2


def _listener(path: Path | None, *, activated: bool) -> socket.socket:
    """Return the socket to serve: made here for this user alone, or the one that systemd has made and guards."""
    if (path is None) != activated:
        raise SettingInvalid("give either --listen SOCKET or --activated", where="hermeval gate")
    if path is None:
        return _passed(os.environ.get("LISTEN_PID"), os.environ.get("LISTEN_FDS"))  # noqa: TID251  commands read it
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise GateUnavailable(
            f"the socket cannot be made: {error}", where=str(path), hint="remove what lies there, or name another path"
        ) from error
    finally:
        os.umask(before)
    return listener


def _passed(pid: str | None, count: str | None) -> socket.socket:
    if pid != str(os.getpid()) or count != "1":
        raise SettingInvalid(
            "no socket was passed", where="--activated", hint="start hermeval-gate.socket, or use --listen"
        )
    try:
        mode = os.fstat(ACTIVATED_FD).st_mode
    except OSError as error:
        raise SettingInvalid(
            f"descriptor {ACTIVATED_FD} was not passed: {error.strerror}",
            where="--activated",
            hint="start hermeval-gate.socket, or use --listen",
        ) from error
    if not stat.S_ISSOCK(mode):
        raise SettingInvalid("what was passed is no socket", where="--activated")
    os.set_inheritable(ACTIVATED_FD, False)
    listener = socket.socket(fileno=ACTIVATED_FD)
    if listener.family != socket.AF_UNIX or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise SettingInvalid("what was passed is no listening Unix socket", where="--activated")
    return listener
