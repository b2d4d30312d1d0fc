"""What PostgreSQL and its driver report, in words that say what happened and what to do about it.

Never with the server's own detail: it quotes keys and values.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

import asyncpg

from engine.errors import StoreDamaged, StoreUnavailable

_GONE = "wait: the store connects again by itself; see whether the server runs and what its log says"


@dataclass(frozen=True, slots=True)
class Place:
    """Which database is meant, in words that a message may hold: never the password."""

    text: str
    user: str

    def __str__(self) -> str:
        return self.text


def is_lost(error: BaseException) -> bool:
    """Tell whether the connection is of no more use, while another one may serve."""
    lost = (
        asyncpg.PostgresConnectionError,
        asyncpg.OperatorInterventionError,  # the server is being shut down, starts up, or ended this session
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        asyncpg.ReadOnlySQLTransactionError,  # a standby by now: look for the primary
        asyncpg.TargetServerAttributeNotMatched,
        OSError,
        EOFError,
    )
    return isinstance(error, lost) and not isinstance(error, (asyncpg.QueryCanceledError, TimeoutError))


def is_transient(error: BaseException) -> bool:
    """Tell whether the same again may work at once: the transaction was rolled back for another's sake."""
    return isinstance(error, asyncpg.TransactionRollbackError)


def may_pass(error: BaseException) -> bool:
    """Tell whether a connection that could not be made may be made in a moment."""
    return is_lost(error) or isinstance(error, (TimeoutError, asyncpg.TooManyConnectionsError))


def connecting(error: BaseException, place: Place) -> StoreUnavailable:
    """Say why there is no connection; nothing was stored."""
    match error:
        case asyncpg.InvalidAuthorizationSpecificationError():
            return StoreUnavailable(
                f"{place} refuses the user {place.user}",
                hint="check the user and the password in the store's URL, and the server's pg_hba.conf",
            )
        case asyncpg.InvalidCatalogNameError():
            return StoreUnavailable(
                f"{place} does not exist",
                hint="make it, owned by the gateway's user: `createdb --encoding UTF8 --owner USER NAME`",
            )
        case asyncpg.TooManyConnectionsError():
            return StoreUnavailable(
                f"{place} takes no more connections",
                hint="raise the server's max_connections, or put ?pool=3 after the store's URL of each instance",
            )
        case asyncpg.CannotConnectNowError():
            return StoreUnavailable(f"{place} is starting up or shutting down", hint=_GONE)
        case asyncpg.TargetServerAttributeNotMatched() | asyncpg.ReadOnlySQLTransactionError():
            return StoreUnavailable(f"{place} accepts no writes: it is a standby", hint="name the primary in the URL")
        case ssl.SSLError():
            return StoreUnavailable(f"{place} and this host do not agree on TLS", hint="see sslmode in the store's URL")
        case TimeoutError():
            return StoreUnavailable(f"{place} does not answer", hint=_GONE)
        case asyncpg.PostgresError():
            return working(error, place, uncertain=False)
        case _:
            return StoreUnavailable(f"{place} cannot be reached ({_kind(error)})", hint=_GONE)


def working(error: BaseException, place: Place, *, uncertain: bool) -> StoreUnavailable:
    """Say why a statement failed; `uncertain` when it may have been committed."""
    match error:
        case asyncpg.DiskFullError():
            message, hint = f"no room is left on the disk of {place}", "free some space: the store goes on by itself"
        case asyncpg.InsufficientPrivilegeError():
            message = f"the user {place.user} may not do in {place} what a store needs"
            hint = "let it own the database, or: GRANT CREATE, USAGE ON SCHEMA public TO it, and make it own the tables"
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedFunctionError() | asyncpg.UndefinedColumnError():
            return StoreDamaged(
                f"the tables of {place} are not Wayside's, or some are missing",
                hint="stop every instance and restore a backup, or name an empty database",
            )
        case asyncpg.DataCorruptedError() | asyncpg.IndexCorruptedError():
            return StoreDamaged(f"{place} is damaged", hint="stop every instance and restore a backup")
        case asyncpg.QueryCanceledError():
            message, hint = (
                f"{place} took too long and gave up",
                "see what holds locks or the disk there (pg_stat_activity)",
            )
        case TimeoutError():
            message, hint = f"{place} has not answered in time", _GONE
        case asyncpg.PostgresError() if not is_lost(error):
            message, hint = f"{place} failed ({_kind(error)})", "the server's log says more"
        case _:
            message, hint = f"the connection to {place} was lost ({_kind(error)})", _GONE
    return StoreUnavailable(message, hint=hint, uncertain=uncertain)


def _kind(error: BaseException) -> str:
    state = getattr(error, "sqlstate", None)
    return f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__
