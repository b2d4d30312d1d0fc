"""What NATS and its driver report, in words that say what happened and what to do about it."""

from __future__ import annotations

from typing import Final

import nats.errors
import nats.js.errors

from engine.errors import StoreDamaged, StoreUnavailable
from engine.store.nats.url import Location

NO_MESSAGE: Final = 10037
NO_STREAM: Final = 10059
WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
NOT_CLUSTERED: Final = 10074
NAME_IN_USE: Final = 10058
_NO_ROOM: Final = frozenset({10023, 10047, 10077, 10028})
_NOT_ENABLED: Final = frozenset({10039, 10076})

_AWAY = "see whether the servers run and have a quorum (`nats server report jetstream`); the store goes on by itself"


class Refusal(StoreUnavailable):
    """The servers know who asks and say no: asking again does not help."""


def code_of(error: BaseException) -> int | None:
    """Read JetStream's own error code."""
    code: int | None = getattr(error, "err_code", None)
    return code


def may_pass(error: BaseException) -> bool:
    """Tell whether the same again may work in a moment."""
    passing = (
        TimeoutError,
        OSError,
        nats.errors.NoRespondersError,
        nats.errors.NoServersError,
        nats.errors.ConnectionClosedError,
        nats.errors.ConnectionReconnectingError,
        nats.errors.ConnectionDrainingError,
        nats.errors.StaleConnectionError,
        nats.errors.OutboundBufferLimitError,
        nats.js.errors.NoStreamResponseError,
        nats.js.errors.ServiceUnavailableError,
    )
    return isinstance(error, passing) and code_of(error) not in _NO_ROOM | _NOT_ENABLED


def may_have_landed(error: BaseException) -> bool:
    """Tell whether a publication that failed so may be stored all the same: it may have been sent."""
    unsent = (nats.errors.NoRespondersError, nats.errors.NoServersError, nats.js.errors.NoStreamResponseError)
    return may_pass(error) and not isinstance(error, unsent)


def connecting(error: BaseException | None, place: Location) -> StoreUnavailable:
    """Say why there is no connection; nothing was stored."""
    if error is not None and is_refusal(error):
        return Refusal(
            f"the servers of {place} refuse the user {place.user or '(none)'}",
            hint="check user, password or credentials in the store's URL, and the servers' accounts",
        )
    kind = "no answer" if error is None else type(error).__name__
    return StoreUnavailable(f"the servers of {place} cannot be reached ({kind})", hint=_AWAY)


def is_refusal(error: BaseException) -> bool:
    """Tell whether the servers know us and say no."""
    return isinstance(error, nats.errors.AuthorizationError) or "authorization" in str(error).lower()


def working(error: BaseException, place: Location, *, uncertain: bool = False) -> StoreUnavailable:
    """Say why a request failed; `uncertain` when it may have been stored."""
    code = code_of(error)
    if code == NO_STREAM:
        return StoreDamaged(
            f"{place} is gone", hint="stop every instance and restore a backup, or start anew to make an empty one"
        )
    if code in _NO_ROOM:
        return StoreUnavailable(
            f"no room is left for {place}",
            hint="free some space, or raise JetStream's max_file_store or the account's limits",
            uncertain=uncertain,
        )
    if code in _NOT_ENABLED:
        return StoreUnavailable(
            f"JetStream is not enabled where {place} should be", hint="start nats-server with `jetstream {}`"
        )
    if may_pass(error):
        return StoreUnavailable(f"{place} has not answered in time", hint=_AWAY, uncertain=uncertain)
    detail = f"{type(error).__name__}, code {code}" if code else type(error).__name__
    return StoreUnavailable(f"{place} failed ({detail})", hint="the servers' logs say more", uncertain=uncertain)
