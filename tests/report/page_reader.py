"""Take a page apart with the standard library's parser."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = frozenset({"meta", "br", "hr", "input", "link", "img", "use", "path", "rect", "line", "circle"})


class Page(HTMLParser):
    """A page taken apart: every element with its attributes, the text, and what stands in style and script."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.unclosed: list[str] = []
        self.texts: list[str] = []
        self.raw: dict[str, list[str]] = {"style": [], "script": []}
        self.comments: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.raw:
            self.raw[self.open[-1]].append(data)
        else:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def text(self) -> str:
        """Everything that a reader sees, or can unfold."""
        return "".join(self.texts)

    def of(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every element of one name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        """All ids."""
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]
