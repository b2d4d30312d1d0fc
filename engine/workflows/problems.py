"""What is wrong with a definition, and the list that one pass of checks fills."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to repair in a definition.

    `step` is the step's name, "" outside one; `pointer` a JSON pointer (RFC 6901) into the document; `line` counts
    from 1, and is 0 when the document did not come from a text; `hint` says what would do, "" when nothing does.
    """

    step: str
    pointer: str
    line: int
    message: str
    hint: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        step = f"step {self.step}: " if self.step else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{step}{self.message}{hint}" + (f" [{self.pointer}]" if self.pointer else "")
