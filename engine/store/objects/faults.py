"""What a service and its client report, in words that say what happened and what to do about it.

The client's own text is never passed on: it quotes answers.
"""

from __future__ import annotations

import re

from obstore.exceptions import NotSupportedError, PermissionDeniedError, UnauthenticatedError

from engine.errors import StoreDamaged, StoreUnavailable
from engine.store.objects.url import Location

_AWAY = "see whether the service can be reached from here, and its status page; the store goes on by itself"


class Refusal(StoreUnavailable):
    """The service knows who asks and says no: asking again does not help."""


def status_of(error: BaseException) -> int | None:
    """Read the HTTP status that the client's error tells of."""
    found = re.search(r"status code: (\d{3})", str(error))
    return int(found[1]) if found else None


def is_missing_bucket(error: BaseException) -> bool:
    """Tell whether it is the bucket that is not there, and not an object."""
    return "NoSuchBucket" in str(error)


def may_pass(error: BaseException) -> bool:
    """Tell whether the same again may work in a moment."""
    lasting = isinstance(error, (PermissionDeniedError, UnauthenticatedError, NotSupportedError))
    return not lasting and not is_missing_bucket(error) and status_of(error) not in {400, 401, 403, 405, 501}


def fault(error: BaseException, place: Location, *, uncertain: bool = False) -> StoreUnavailable:
    """Say why a request failed; `uncertain` when an object may have been stored."""
    status = status_of(error)
    if is_missing_bucket(error):
        return StoreDamaged(f"{place} does not exist", hint="make it, without versions and without lifecycle rules")
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or status in {401, 403}:
        return Refusal(
            f"{place} refuses us",
            hint="the credentials are wrong, or may not get, put, list and delete there; they are taken from the "
            "environment (AWS_ACCESS_KEY_ID …, GOOGLE_APPLICATION_CREDENTIALS) or the machine's own account",
        )
    if "token request" in str(error) or "credential" in str(error).lower():
        return StoreUnavailable(
            f"no credentials were found for {place}",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or GOOGLE_APPLICATION_CREDENTIALS",
            uncertain=uncertain,
        )
    if status is not None:
        return StoreUnavailable(f"{place} answers with status {status}", hint=_AWAY, uncertain=uncertain)
    return StoreUnavailable(f"{place} does not answer", hint=_AWAY, uncertain=uncertain)


def unconditional(place: Location) -> StoreDamaged:
    """Say that the service overwrites what it was told to create."""
    return StoreDamaged(
        f"{place} overwrites objects that it is asked to create only when they are not there",
        hint="use a service that honours `If-None-Match: *` on PUT (for Google, `x-goog-if-generation-match: 0`)",
    )
