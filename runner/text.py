"""Foreign text made safe to show on a terminal.

Boundary: pure. Not here: HTML and Markdown escaping (runner/report).
Rules: whatever is read from an attempt, a transcript or a file name goes through ``visible`` before it is printed. What comes out holds no control
character, no ANSI sequence, no bidirectional override and no lone surrogate, and can be encoded in UTF-8 (REQUIREMENTS C, cases P13). ``visible``
of its own output changes nothing, so escaping twice does no harm.
"""

from __future__ import annotations

import unicodedata


def visible(text: str, *, newlines: bool = False) -> str:
    r"""Return ``text`` with every character that a terminal would act on, or not show, written as an escape (``\x1b``, ``\u202e``, ``\U000e0001``).

    With ``newlines`` a line feed is kept as it is; else one line comes out, whatever goes in.
    """
    if text.isprintable():
        return text
    return "".join(ch if _harmless(ch) or (newlines and ch == "\n") else _escape(ch) for ch in text)


def visible_bytes(data: bytes, *, newlines: bool = False) -> str:
    r"""Return bytes that should be UTF-8 as visible text; a byte that is not is written ``\xNN``."""
    return visible(data.decode("utf-8", "backslashreplace"), newlines=newlines)


def _harmless(ch: str) -> bool:
    return ch.isprintable() or unicodedata.category(ch) == "Zs"


def _escape(ch: str) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(ch)
    if known is not None:
        return known
    code = ord(ch)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
