"""Who answers a run, from the command line's options: the fixture's script, or the live provider.

Boundary: reads the key and scripts; connects to the live provider once. Not here: the commands that have these options (run.py, judge.py), the upstreams (runner/gate/upstreams).
Rules: everything that can be refused is refused before anything starts. The key is read from a file or the environment and goes to the gate and to the upstream alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from runner.cli.paths import NamedPath
from runner.errors import InputMissing, KeyMissing, SettingInvalid

if TYPE_CHECKING:
    from runner.gate.upstreams import Upstream
    from runner.plan import Provider


_OPTIONS = (
    click.option(
        "--provider",
        type=click.Choice(["scripted", "anthropic"]),
        default="scripted",
        show_default=True,
        help="Who answers: the fixture's script (no key, no network, no cost), or the live provider.",
    ),
    click.option(
        "--script",
        type=NamedPath(),
        metavar="FILE",
        help="The scripted provider's script; default: the fixture's own.",
    ),
    click.option(
        "--base-url",
        metavar="URL",
        help="Address of the live provider, or unix://SOCKET of a hermeval gate, which has the key; default: Anthropic's.",
    ),
    click.option(
        "--key-file",
        type=NamedPath(),
        metavar="FILE",
        help="File with the provider key; default: ANTHROPIC_API_KEY.",
    ),
    click.option(
        "--ca-file",
        type=NamedPath(),
        metavar="FILE",
        help="PEM file to trust beside the system's, for the live provider.",
    ),
    click.option(
        "--gate-mode",
        type=click.Choice(["first-party", "base-url"]),
        default="first-party",
        show_default=True,
        help="How the CLI sees the gate: as the provider's own host, or as a custom base URL.",
    ),
)
MAX_KEY_BYTES = 16 << 10
Command = TypeVar("Command", bound=Callable[..., int])


def provider_options(command: Command) -> Command:
    """Add the options that say who answers to a command that starts model runs."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Choice(Protocol):
    """The options that say who answers."""

    @property
    def provider(self) -> str:
        """``scripted`` or ``anthropic``."""

    @property
    def folder(self) -> Path:
        """The fixtures' folder, with ``scripts`` in it."""

    @property
    def script(self) -> Path | None:
        """A script to use in place of the fixture's own."""

    @property
    def base_url(self) -> str | None:
        """Address of the live provider."""

    @property
    def key_file(self) -> Path | None:
        """File with the provider key; else ANTHROPIC_API_KEY."""

    @property
    def ca_file(self) -> Path | None:
        """PEM file to trust beside the system's."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment."""


def read_key(choice: Choice) -> str | None:
    """Return the provider key from ``--key-file`` or ANTHROPIC_API_KEY; None where ``--base-url`` names the socket of a gate that has it.

    Raises: KeyMissing, SettingInvalid.
    """
    from runner.gate.upstreams.anthropic import socket_path

    if socket_path(choice.base_url) is not None:
        if choice.key_file is not None:
            raise SettingInvalid("a gate behind a socket has the key", where="--key-file", hint="leave it out")
        return None
    if choice.key_file is not None:
        return read_key_file(choice.key_file)
    key = choice.environ.get("ANTHROPIC_API_KEY", "").strip()
    if not key:
        raise KeyMissing(
            "the live provider needs a key",
            where="--provider anthropic",
            hint="set ANTHROPIC_API_KEY or give --key-file FILE",
        )
    return key


def read_key_file(path: Path) -> str:
    """Return the provider key that a file holds: a regular file, which is read within a bound and never waited for. Raises: KeyMissing."""
    from runner.regular_file import read_small

    hint = "name a file that holds the key and nothing else"
    try:
        key = read_small(path, MAX_KEY_BYTES).decode("ascii").strip()
    except (OSError, ValueError) as error:
        no_text = isinstance(error, UnicodeDecodeError)
        reason = "it is no plain text" if no_text else getattr(error, "strerror", None) or str(error)
        raise KeyMissing(f"the key file cannot be read: {reason}", where=str(path), hint=hint) from error
    if not key:
        raise KeyMissing("the key file is empty", where=str(path), hint=hint)
    return key


def require_listener(choice: Choice) -> None:
    """Ask once, before anything is started, whether somebody listens where live answers are to come from. Raises: ProviderUnreachable."""
    if choice.provider == "anthropic":
        from runner.gate.upstreams.anthropic import DEFAULT_BASE_URL
        from runner.gate.upstreams.reach import require_listener as ask

        ask(DEFAULT_BASE_URL if choice.base_url is None else choice.base_url)


def make_source(choice: Choice, script_name: str, key: str | None) -> tuple[Provider, Callable[[], Upstream]]:
    """Return who answers, as it stands in the plan, and what makes the upstream of one run. ``script_name`` is the script's file name without ``.json``.

    Raises: SettingInvalid, InputMissing, ScriptInvalid, GateError.
    """
    from runner.canonical import sha256_hex
    from runner.plan import Provider
    from runner.regular_file import open_regular

    if choice.provider == "anthropic":
        if choice.script is not None:
            raise SettingInvalid("--script goes with --provider scripted", where="--provider anthropic")
        from runner.gate.upstreams.anthropic import DEFAULT_BASE_URL, AnthropicUpstream

        base_url = DEFAULT_BASE_URL if choice.base_url is None else choice.base_url
        AnthropicUpstream(
            key, base_url=base_url
        )  # refuses an address or a key that cannot be used, before anything starts
        return Provider(kind="anthropic", base_url=base_url), lambda: AnthropicUpstream(
            key, base_url=base_url, ca_file=choice.ca_file
        )
    if choice.base_url is not None or choice.key_file is not None or choice.ca_file is not None:
        raise SettingInvalid(
            "--base-url, --key-file and --ca-file go with --provider anthropic", where="--provider scripted"
        )
    from runner.gate.script import MAX_SCRIPT_BYTES, parse_script
    from runner.gate.upstreams.scripted import ScriptedUpstream

    path = choice.script or choice.folder / "scripts" / f"{script_name}.json"
    try:
        with open_regular(path) as file:
            source = file.read(MAX_SCRIPT_BYTES + 1)
    except (OSError, ValueError) as error:
        hint = "write one, or name another with --script; or use --provider anthropic"
        raise InputMissing(
            f"the scripted provider's script cannot be read: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            hint=hint,
        ) from error
    script = parse_script(source, str(path))
    return Provider(kind="scripted", script=path.stem, script_sha256=sha256_hex(source)), lambda: ScriptedUpstream(
        script
    )
