"""Find keys under a prefix with few requests.

Services list upwards only, a thousand names at a time, from any name on. So the highest number under a prefix is found
by galloping: the first list has all of it where there are fewer than a thousand; otherwise each further one starts
twice as far on as the one before, until one comes back empty, and the rest is halved. And where an instance has looked
before, it starts at what it found then: one list, whose answer is short.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Final

from engine.limits import NUMBER_DIGITS, OBJECTS_REMEMBERED
from engine.store.keys import range_end
from engine.store.objects.paths import decode, encode, folder
from engine.store.objects.requests import PAGE, Entry, Requests

Named = tuple[str, Entry]
_HIGHEST: Final = 10**NUMBER_DIGITS - 1


class Listing:
    """Lists a store's keys, with their entries, in key order."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        # By prefix, the highest number that was found.
        self._numbers: OrderedDict[str, int] = OrderedDict()

    async def pages(self, prefix: str, after: str | None) -> AsyncIterator[list[Named]]:
        """Go through all keys that start with `prefix` and are above `after`, a page at a time."""
        offset = encode(after) if after is not None and after >= prefix else None
        while True:
            entries = await self._requests.page(folder(prefix), offset)
            found, beyond = _within(entries, prefix)
            if found:
                yield found
            if beyond or len(entries) < PAGE:
                return
            offset = entries[-1].path

    async def last(self, prefix: str) -> Named | None:
        """Find the highest key that starts with `prefix`."""
        remembered = self._numbers.get(prefix)
        if remembered:
            # From just below: an empty answer says that it was deleted, and the search starts anew.
            found = await self._last_above(prefix, remembered - 1)
            if found is not None:
                return self._remember(prefix, found)
            del self._numbers[prefix]
        return self._remember(prefix, await self._last_above(prefix, None))

    def _remember(self, prefix: str, found: Named | None) -> Named | None:
        number = None if found is None else _number(found[0], prefix)
        if number is not None:
            self._numbers[prefix] = number
            self._numbers.move_to_end(prefix)
            if len(self._numbers) > OBJECTS_REMEMBERED:
                self._numbers.popitem(last=False)
        return found

    async def _last_above(self, prefix: str, number: int | None) -> Named | None:
        best, more = await self._look(prefix, None if number is None else encode(_key(prefix, number)))
        if best is None or not more:
            return best
        reached = _number(best[0], prefix)
        if reached is None:
            return await self._last_by_pages(prefix, best)
        low, high, step = reached, None, 0
        while True:
            # Nothing is at or above `high`. Where that leaves no more than a page, one more list has all of it.
            start = low + 1
            if high is None:
                start = min(start + step, _HIGHEST)
                step = step * 2 or PAGE
            elif high - low > PAGE:
                start = (low + high) // 2
            found, more = await self._look(prefix, encode(_key(prefix, start - 1)))
            if found is None:
                if start == low + 1:
                    return best
                high = start
                continue
            best, reached = found, _number(found[0], prefix)
            if not more:
                return best
            if reached is None:
                return await self._last_by_pages(prefix, best)
            low = reached

    async def _last_by_pages(self, prefix: str, best: Named) -> Named:
        """Go on page by page: the keys under this prefix are not numbers."""
        async for page in self.pages(prefix, best[0]):
            best = page[-1]
        return best

    async def _look(self, prefix: str, offset: str | None) -> tuple[Named | None, bool]:
        """List once: the last key with the prefix, and whether there may be more behind it."""
        while True:
            entries = await self._requests.page(folder(prefix), offset)
            found, beyond = _within(entries, prefix)
            more = not beyond and len(entries) == PAGE
            if found or not more:
                return (found[-1] if found else None), more
            offset = entries[-1].path


def _within(entries: list[Entry], prefix: str) -> tuple[list[Named], bool]:
    """Keep what has the prefix; tell whether the list went beyond it."""
    found: list[Named] = []
    end = range_end(prefix)
    for entry in entries:
        key = decode(entry.path)
        if key is None:
            continue
        if end is not None and key >= end:
            return found, True
        if key.startswith(prefix):
            found.append((key, entry))
    return found, False


def _key(prefix: str, number: int) -> str:
    return f"{prefix}{number:0{NUMBER_DIGITS}d}"


def _number(key: str, prefix: str) -> int | None:
    rest = key[len(prefix) :]
    return int(rest) if len(rest) == NUMBER_DIGITS and rest.isascii() and rest.isdigit() else None
