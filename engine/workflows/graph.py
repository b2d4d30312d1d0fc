"""The two levels of a workflow's graph: dependencies that exist, no circles, and what comes before what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def circle(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Find a circle of dependencies, in order, its first name repeated at the end; empty when there is none.

    `edges` gives what each name depends on; names that it does not hold are ignored.
    """
    done: set[str] = set()
    for start in edges:
        path: list[str] = []
        waiting = [(start, iter(edges[start]))] if start not in done else []
        path.extend(name for name, _ in waiting)
        while waiting:
            name, rest = waiting[-1]
            following = next((other for other in rest if other in edges and other not in done), None)
            if following is None:
                done.add(name)
                waiting.pop()
                path.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            else:
                waiting.append((following, iter(edges[following])))
                path.append(following)
    return []


def ancestors(edges: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    """Find everything that each name depends on, directly or not. Circles are allowed for."""
    found: dict[str, frozenset[str]] = {}
    for start in edges:
        seen: set[str] = set()
        waiting = list(edges[start])
        while waiting:
            name = waiting.pop()
            if name not in seen and name in edges:
                seen.add(name)
                waiting.extend(edges[name])
        found[start] = frozenset(seen)
    return found
