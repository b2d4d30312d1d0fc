"""Race 7: a device is revoked while it signals."""

from __future__ import annotations

from typing import Any

from tests.interleavings.explorer import Scenario
from tests.interleavings.programs import adds_device, revokes_device, runs_it, signals_if_authorised
from tests.interleavings.scenarios.setup import PLAIN, scenario


def revocation_and_signal(**options: Any) -> Scenario:
    """A gateway looks for changes and lets its device signal, twice; between them it is revoked on another instance."""
    players = {"G": signals_if_authorised("s", "t", definition=PLAIN), "X": revokes_device()}
    before = [(0.0, adds_device()), (0.0, runs_it("w", PLAIN))]
    return scenario("7 revocation/signal", players, before=before, **{"moments": (0.0, 2.0), **options})
