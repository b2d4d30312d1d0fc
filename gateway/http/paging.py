"""Pages of lists that are read whole: a cursor is the name of the last item of the page before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, TypeVar

from fastapi import Query

from engine.limits import NAME_PATTERN
from gateway.http.models import ID_PATTERN, KEY_PATTERN

T = TypeVar("T")

MAX_PAGE: Final = 1_000
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="how many at most")]


def _cursor(pattern: str) -> Any:  # noqa: ANN401  what FastAPI has for it
    """Take a cursor that has the form of a list's names, or is empty; the item that it names may be gone meanwhile."""
    return Query(pattern=f"^({pattern})?$", description="`next` of an earlier answer")


AfterName = Annotated[str | None, _cursor(NAME_PATTERN)]
AfterId = Annotated[str | None, _cursor(ID_PATTERN)]
AfterKey = Annotated[str | None, _cursor(KEY_PATTERN)]


def page(items: Iterable[T], name: Callable[[T], str], *, after: str | None, limit: int) -> tuple[list[T], str | None]:
    """Give the items after the cursor, in the order of their names, and the cursor of the next page if there is one.

    What was added or taken away between two pages is shown or not; nothing else is missed or shown twice.
    """
    rest = sorted((item for item in items if after is None or name(item) > after), key=name)
    shown = rest[:limit]
    return shown, name(shown[-1]) if len(rest) > limit else None


def named(field: str) -> Callable[[dict[str, Any]], str]:
    """Take an item's name from one of its fields."""

    def name(item: dict[str, Any]) -> str:
        return str(item[field])

    return name
