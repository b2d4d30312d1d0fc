"""How many file descriptors this process may have open: each connection is one."""

from __future__ import annotations

import resource
from typing import Final

_WHICH: Final = resource.RLIMIT_NOFILE
_MOST: Final = 1_048_576  # some programs that a workflow's step runs look at every number up to the limit
RESERVED: Final = 512  # for connections that are refused with a reason, the HTTP doors, the store and its files
_REFUSED_AND_FILES: Final = 320


def raise_limit() -> int:
    """Raise the soft limit of open descriptors to the hard one, a million at most; return what holds from now on."""
    soft, hard = (limit if limit != resource.RLIM_INFINITY else _MOST for limit in resource.getrlimit(_WHICH))
    wanted = min(hard, _MOST)
    if soft < wanted:
        try:
            resource.setrlimit(_WHICH, (wanted, resource.getrlimit(_WHICH)[1]))
        except (ValueError, OSError):  # some systems allow less than they say
            return soft
    return max(soft, wanted)


def connections_that_fit(wanted: int, descriptors: int) -> int:
    """Return how many connections leave `RESERVED` descriptors free: `wanted`, or less where that is too many.

    Without them the process could accept nothing any more, `/healthz` neither.
    """
    return min(wanted, max(descriptors - RESERVED, 1))


def left_for_http(wanted: int, connections: int, descriptors: int, *, doors: int) -> int:
    """Return how many connections each HTTP door may have beside the listener's: those are not to be kept out by it."""
    return min(wanted, (max(descriptors - connections, RESERVED) - _REFUSED_AND_FILES) // doors)
