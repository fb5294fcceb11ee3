"""What a reader of foreign bytes is, to those who try it.

Boundary: pure. Not here: which there are (targets.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.fuzz.mutate import Form, mutate

Read = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """One reader."""

    name: str
    form: Form
    samples: Callable[[], Sequence[bytes]]
    open: Callable[[], Read]
    """Makes the reader; called once a process."""
    declared: Callable[[], tuple[type[BaseException], ...]] = tuple
    """What it may raise."""
    generate: Callable[[Random], bytes] | None = None
    """Makes an input where the form does not say how."""
    grows: bool = True
    """Whether inputs of any size are its business."""

    def input(self, chance: Random) -> bytes:
        """Make an input."""
        return self.generate(chance) if self.generate is not None else mutate(self.samples(), self.form, chance)


@dataclass
class Reader:
    """A target's reader, made."""

    target: Target
    read: Read = field(init=False)
    declared: tuple[type[BaseException], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Make it."""
        self.read, self.declared = self.target.open(), self.target.declared()

    def __call__(self, data: bytes) -> bool:
        """Read an input; says whether it gave a value. Raises whatever is not declared, and any error that says that it is a defect."""
        try:
            self.read(data)
        except self.declared as error:
            if getattr(error, "code", "") == "internal":
                raise
            return False
        return True
