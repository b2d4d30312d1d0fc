"""Counts of signals by the fault that came last: acknowledged, applied, refused, repeated; and what must not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Tally:
    """What senders were told, counted under the fault that had come last."""

    fault: str = "before any"
    receipts: dict[str, set[str]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    same: Counter[str] = field(default_factory=Counter)
    anew: Counter[str] = field(default_factory=Counter)
    turned_away: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _first: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    @property
    def acknowledged(self) -> int:
        """How many signals have been acknowledged, whatever the fault."""
        return len(self._known)

    def sent_again(self, *, identified: bool) -> None:
        """Count a signal that is sent once more: under its id, or as what is another signal."""
        (self.repeated if identified else self.anew)[self.fault] += 1

    def accept(self, device: str, signal_id: str | None, receipt: str, at: str) -> None:
        """Count a signal that was told accepted; under an id that was told so before, it must be the same answer."""
        if receipt not in self._known:
            self._known.add(receipt)
            self.receipts.setdefault(self.fault, set()).add(receipt)
        if signal_id is None:
            return
        first = self._first.get((device, signal_id))
        if first is None:
            self._first[device, signal_id] = (receipt, at)
        elif first == (receipt, at):
            self.same[self.fault] += 1
        else:
            self.wrong.append(f"{device} {signal_id}: {first}, then {(receipt, at)}")

    def refuse(self, error: str) -> None:
        """Count a signal that was refused."""
        self.refused[self.fault] += 1
        self.refusals[error] += 1

    def turn_away(self, what: str, *, properly: bool) -> None:
        """Count a signal that was told, without a decision, to come again: 503 with Retry-After, or a DISCONNECT."""
        self.turned_away[self.fault] += 1
        if not properly:
            self.wrong.append(f"{self.fault}: {what}")

    def note(self, device: str, signal_id: str | None, reply: Mapping[str, Any]) -> None:
        """Count a reply of the gateway's."""
        if reply["ok"]:
            self.accept(device, signal_id, reply["receipt"], reply["at"])
        else:
            self.refuse(reply["error"])

    def lines(self, applied: Mapping[str, int]) -> list[str]:
        """Say it in words, a fault a line; `applied` tells how often each receipt is an outcome."""
        faults = dict.fromkeys([*self.receipts, *self.refused, *self.repeated, *self.turned_away])
        return [self._line(fault, applied) for fault in faults] + [f"  WRONG: {each}" for each in self.wrong[:5]]

    def _line(self, fault: str, applied: Mapping[str, int]) -> str:
        receipts = self.receipts.get(fault, set())
        once = sum(applied.get(receipt, 0) == 1 for receipt in receipts)
        held = sum(not applied.get(receipt) for receipt in receipts)
        return (
            f"  {fault}: signals acknowledged {len(receipts)}, applied {once}, held {held}, "
            f"refused {self.refused[fault]}, repeated {self.repeated[fault]} (after their answer {self.same[fault]}, "
            f"each with the first one's), without an id {self.anew[fault]}; "
            f"told to come again {self.turned_away[fault]}"
        )
