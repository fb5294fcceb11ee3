"""Paths as they stand on a command line.

Boundary: looks at the file system, once a path. Not here: what a path is for (each command's own).
Rules: an empty text is no path. ``Path('')`` is the working directory, so that an unset variable of a caller's script would name whatever lies there, and pay for it. What the
kernel takes for no name at all (too long) is told here too, once for all commands; everything else a path can be is told where it is used.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import click

from runner.errors import SettingInvalid

_SHOWN = 80


class NamedPath(click.Path):
    """A path of an option or an argument, as a ``Path``. Raises SettingInvalid (``path-invalid``) for what can be no path."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if isinstance(value, str):
            require_path(value, _named(param))
        return super().convert(value, param, ctx)


def require_path(text: str, where: str) -> None:
    """Refuse what can be no path; ``where`` is the option or argument. Raises: SettingInvalid (``path-invalid``)."""
    if not text:
        raise SettingInvalid(
            "an empty text is no path",
            where=where,
            hint="name it; for the working directory say . (is a variable unset?)",
            code="path-invalid",
        )
    try:
        os.lstat(text)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise SettingInvalid(
                f"{shortened(text)} is too long for a path",
                where=where,
                hint="name a shorter one",
                code="path-invalid",
            ) from error
    except ValueError:
        return  # a null character, which no argument of a process holds; told where it is used


def shortened(text: str) -> str:
    """Return a name for a message, cut where it is long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}… ({len(text)} characters)"


def _named(param: click.Parameter | None) -> str:
    if param is None:
        return ""
    return param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name
