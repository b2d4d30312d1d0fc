"""Topic filters (section 4.7): which are well formed, what they match, and who subscribes to a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from gateway.listener.codec import Reason

Subscriber = TypeVar("Subscriber")
Value = TypeVar("Value")


def filter_problem(topic_filter: str, max_levels: int, max_bytes: int) -> Reason | None:
    """Say what is wrong with a topic filter (4.7.1; shared subscriptions, 4.8.2, are not offered), or None."""
    if topic_filter.startswith("$share/"):
        return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
    levels = topic_filter.split("/")
    for position, level in enumerate(levels):
        if ("#" in level and (level != "#" or position != len(levels) - 1)) or ("+" in level and level != "+"):
            return Reason.TOPIC_FILTER_INVALID
    too_long = len(levels) > max_levels or len(topic_filter.encode()) > max_bytes
    return Reason.TOPIC_FILTER_INVALID if too_long else None


def matches(topic_filter: str, topic: str) -> bool:
    """Say whether a well-formed filter matches `topic`; a leading wildcard matches no `$` topic (4.7.2)."""
    if "+" not in topic_filter and not topic_filter.endswith("#"):
        return topic_filter == topic
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in {"+", "#"}:
        return False
    for position, level in enumerate(wanted):
        if level == "#":
            return True  # it stands for its parent, too (4.7.1.2)
        if position >= len(levels) or (level not in {"+", levels[position]}):
            return False
    return len(wanted) == len(levels)


class _Node(Generic[Subscriber, Value]):
    __slots__ = ("children", "subscribers")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Subscriber, Value]] = {}
        self.subscribers: dict[Subscriber, Value] = {}


class FilterTree(Generic[Subscriber, Value]):
    """Subscribers by topic filter, a level a node: a look-up costs by the topic's levels, not by the subscribers."""

    def __init__(self) -> None:
        self._root: _Node[Subscriber, Value] = _Node()

    def add(self, topic_filter: str, subscriber: Subscriber, value: Value) -> None:
        """Add or replace what `subscriber` has under `topic_filter`."""
        node = self._root
        for level in topic_filter.split("/"):
            if (child := node.children.get(level)) is None:
                child = node.children[level] = _Node()
            node = child
        node.subscribers[subscriber] = value

    def remove(self, topic_filter: str, subscriber: Subscriber) -> None:
        """Remove it, and the nodes that nobody needs any more; does nothing when it is not there."""
        path = [self._root]
        levels = topic_filter.split("/")
        for level in levels:
            if (child := path[-1].children.get(level)) is None:
                return
            path.append(child)
        path[-1].subscribers.pop(subscriber, None)
        for level in reversed(levels):
            node = path.pop()
            if node.children or node.subscribers:
                return
            del path[-1].children[level]

    def match(self, topic: str) -> Iterator[tuple[Subscriber, Value]]:
        """Yield each subscriber once for every one of its filters that matches `topic`."""
        nodes = [self._root]
        wild = not topic.startswith("$")  # 4.7.2
        for level in topic.split("/"):
            following = []
            for node in nodes:
                if wild and (rest := node.children.get("#")) is not None:
                    yield from rest.subscribers.items()
                if wild and (any_level := node.children.get("+")) is not None:
                    following.append(any_level)
                if (exact := node.children.get(level)) is not None:
                    following.append(exact)
            nodes, wild = following, True
        for node in nodes:
            yield from node.subscribers.items()
            if (rest := node.children.get("#")) is not None:
                yield from rest.subscribers.items()
