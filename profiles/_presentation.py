"""How a report that people read must look: the checks that every outtake profile shares (B7).

Boundary: pure. Not here: what the report must say (run_outtake.py, run_outtake_coding.py).
Rules: the text is read as Markdown, line by line, in linear time whatever it holds; what stands in a code fence is quoted and is not judged for words. Every check is deterministic and names the first place at fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from profiles._reading import list_at, mapping_at, number_at, text_at
from profiles._types import Check, FixtureJson

DEFAULT_SECTIONS = ("Summary", "Taken", "Left out", "Open")
DEFAULT_WORDS = 600
EXPECTATIONS = ("sections", "max_words")
"""Keys of ``expect`` that this module reads."""

_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s(.*)\Z")
_BULLET = re.compile(r"\s*(?:[-*+]|[0-9]{1,9}[.)])(?=\s)")
_PLACEHOLDER = re.compile(
    r"\b(?:TODO|TBD|FIXME|XXX|lorem ipsum)\b|<(?:insert|your|placeholder)[^>]{0,200}>|\{\{[^}]{0,200}\}\}",
    re.IGNORECASE,
)
_LOCAL = re.compile(r"(?<![\w/])/(?:home|Users|root|tmp|workspace|var/folders)/[\w.@~+-]+|\b[A-Z]:\\[\w.]+")
_ADDRESS = re.compile(
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://[^\s<>\"'`)\]|]+", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Report:
    """A report, cut into lines and sections."""

    lines: tuple[str, ...]
    """Without what stands in code fences."""
    headings: tuple[tuple[int, str, int], ...]
    """Level, text without markup, number of its line among ``lines``."""
    closed: bool
    """Whether every code fence is closed."""
    words: int

    def section(self, title: str) -> tuple[str, ...] | None:
        """Return the lines below the heading of that title, up to the next heading of the same or a higher level; None without such a heading."""
        for place, (level, text, at) in enumerate(self.headings):
            if text.casefold() == title.casefold():
                end = next((line for other, _, line in self.headings[place + 1 :] if other <= level), len(self.lines))
                return self.lines[at + 1 : end]
        return None


@dataclass(frozen=True, slots=True)
class Presentation:
    """What a case asks of the form."""

    sections: tuple[str, ...]
    max_words: int
    addresses: frozenset[str]
    """Those that stand in the fixture's input."""


def read_presentation(fixture: FixtureJson, sections: Sequence[str] = DEFAULT_SECTIONS) -> Presentation:
    """Return what a case asks of the form: ``expect.sections`` (titles, in order) and ``expect.max_words``.

    Raises: ValueError with the JSON pointer.
    """
    expect = mapping_at(fixture.get("expect", {}), "/expect")
    wanted = list_at(expect.get("sections", list(sections)), "/expect/sections", filled=True)
    titles = tuple(text_at(title, f"/expect/sections/{index}") for index, title in enumerate(wanted))
    if len({title.casefold() for title in titles}) != len(titles):
        raise ValueError("/expect/sections: a title stands there twice")
    words = number_at(expect.get("max_words", DEFAULT_WORDS), "/expect/max_words", least=1)
    return Presentation(titles, words, frozenset(addresses(fixture.get("input", {}))))


def read_report(output: str) -> Report:
    """Cut a report into lines, headings and quoted blocks.

    Raises: TypeError if it is no text.
    """
    if not isinstance(output, str):
        raise TypeError(f"the output is {type(output).__name__}, not text")
    lines: list[str] = []
    headings: list[tuple[int, str, int]] = []
    fence = ""
    for line in output.splitlines():
        marker = _FENCE.match(line)
        if fence:
            if marker and marker.group(1).startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        if marker:
            fence = marker.group(1)
            continue
        heading = _HEADING.match(line)
        if heading:
            text = plain(heading.group(2).strip().rstrip("#"))
            headings.append((len(heading.group(1)), text, len(lines)))
        lines.append(line)
    return Report(tuple(lines), tuple(headings), not fence, sum(len(line.split()) for line in lines))


def presentation_checks(asked: Presentation, report: Report) -> list[Check]:
    """Return the checks on the form: title, sections, placeholders, fences, local paths, addresses, length."""
    return [
        _one_title(report),
        _sections(asked, report),
        _without("no-placeholder", _PLACEHOLDER, report, "a placeholder"),
        Check(
            "fences-closed",
            report.closed,
            "Every code fence is closed" if report.closed else "A code fence is left open",
        ),
        _without("no-local-path", _LOCAL, report, "a path of the machine it was made on"),
        _addresses(asked, report),
        _length(asked, report),
    ]


def plain(text: str) -> str:
    """Return text without Markdown emphasis and code marks (underscores stay: paths have them) and without blanks around it."""
    return re.sub(r"[*`~]+", "", text).strip()


def bullets(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the list items of some lines, markers taken off."""
    marked = ((_BULLET.match(line), line) for line in lines)
    return tuple(text for match, line in marked if match and (text := line[match.end() :].strip()))


def holds(text: str, word: str) -> bool:
    """Whether a word or an id stands in a text, whole, whatever its case."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text, re.IGNORECASE) is not None


def addresses(value: object) -> Iterator[str]:
    """Yield every address in a JSON value, keys too, in lower case."""
    match value:
        case str():
            for found in _ADDRESS.findall(value):
                yield found.casefold().rstrip(".,;:!")
        case Mapping():
            for key, held in value.items():
                yield from addresses(key)
                yield from addresses(held)
        case list() | tuple():
            for part in value:
                yield from addresses(part)
        case _:
            return


def _one_title(report: Report) -> Check:
    titles = [text for level, text, _ in report.headings if level == 1]
    first = next((line for line in report.lines if line.strip()), "")
    if len(titles) != 1:
        return Check("one-title", False, f"The report has {len(titles)} headings of the first level instead of one")
    met = _HEADING.match(first) is not None and plain(first.strip().strip("#")) == titles[0]
    return Check("one-title", met, "The report begins with its title" if met else "Something stands before the title")


def _sections(asked: Presentation, report: Report) -> Check:
    found = [text.casefold() for level, text, _ in report.headings if level > 1]
    places = []
    for title in asked.sections:
        if title.casefold() not in found:
            return Check("sections-present", False, f"The section {title!r} is missing")
        places.append(found.index(title.casefold()))
    met = places == sorted(places)
    said = ", ".join(asked.sections)
    return Check(
        "sections-present",
        met,
        f"The sections stand in order: {said}" if met else f"The sections do not stand in the order {said}",
    )


def _without(name: str, pattern: re.Pattern[str], report: Report, what: str) -> Check:
    for line in report.lines:
        match = pattern.search(line)
        if match:
            return Check(name, False, f"The report shows {what}: {match.group(0)!r}")
    return Check(name, True, f"The report does not show {what}")


def _addresses(asked: Presentation, report: Report) -> Check:
    strange = sorted(set(addresses(list(report.lines))) - asked.addresses)
    if strange:
        return Check(
            "addresses-known", False, f"The report gives an address that the input does not hold: {strange[0]!r}"
        )
    return Check("addresses-known", True, "Every address in the report stands in the input")


def _length(asked: Presentation, report: Report) -> Check:
    met = 0 < report.words <= asked.max_words
    return Check(
        "within-length", met, f"The report has {report.words} words; between 1 and {asked.max_words} are asked for"
    )
