"""Ways of getting the protocol wrong in both processes, the race that shows each, and what its judge says then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine import chains
from tests.instances import races
from tests.instances.orders import ANSWERED_IS_STORED, APPLIED_ONCE
from tests.interleavings.test_mutations import CAUGHT


def unfixed(patch: pytest.MonkeyPatch) -> None:
    """The attempt of an identified signal is not fixed before its record is created."""

    async def fix(*_: Any, **__: Any) -> bool:
        return True

    patch.setattr(chains, "fix", fix)


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "attempts are not fixed": unfixed,
    **{name: mutation for name, (mutation, *_) in CAUGHT.items()},
}
# By a mutation, and how the race's name begins: one of these is named.
WRONG: dict[tuple[str, str], set[str | None]] = {
    ("V6", "3,"): {ANSWERED_IS_STORED},
    ("V6", "10,"): {races.cancelled_or_not.__doc__},
    ("V10", "9,"): {races.taken_over.__doc__},
    ("no look at the own outcome", "4,"): {races.one_takes_it.__doc__},
    ("stored and taken for failed", "6, one signal sent to both, a wait open"): {APPLIED_ONCE},
    ("attempts are not fixed", "6, one signal sent to both, a wait open"): {APPLIED_ONCE},
}
