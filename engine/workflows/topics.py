"""Which topics a workflow may publish to: none that belongs to the gateway's own map."""

from __future__ import annotations

from typing import Final

from engine.limits import MAX_PUBLISH_TOPIC_BYTES, MAX_PUBLISH_TOPIC_LEVELS

# The first levels of the topic map. A command that went out on one would look like a signal, a request or an answer.
RESERVED_LEVELS: Final = frozenset({"d", "signals", "runs", "get", "replies", "gateway", "status"})


def topic_problem(topic: str, *, whole: bool = True) -> str:
    """Say what forbids publishing to `topic`, "" if nothing does (MQTT 5.0, sections 1.5.4 and 4.7).

    A broker may end the connection over any of it. With one that does so over a topic that is in order, as NATS does
    over a space, the bridge has to get by: spaces are common in the topics of a home.

    With `whole` false, `topic` is only the literal beginning of one.
    """
    first, slash, _ = topic.partition("/")
    if "+" in topic or "#" in topic:
        return "a topic to publish to has no wildcards"
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in topic):
        return "a topic has no control characters"
    if any(_is_no_character(ord(character)) for character in topic):
        return "a topic has no code points that are no characters"
    if topic.startswith("$"):
        return "topics that begin with $ belong to the broker"
    if first in RESERVED_LEVELS and (slash or whole):
        return f"topics under {first}/ belong to the gateway"
    if not whole:
        return ""
    if not topic:
        return "a topic has at least one character"
    if len(topic.encode(errors="replace")) > MAX_PUBLISH_TOPIC_BYTES:
        return f"a topic has at most {MAX_PUBLISH_TOPIC_BYTES} bytes"
    if topic.count("/") >= MAX_PUBLISH_TOPIC_LEVELS:
        return f"a topic has at most {MAX_PUBLISH_TOPIC_LEVELS} levels"
    return ""


def _is_no_character(code: int) -> bool:
    """Tell surrogates and the code points that Unicode sets aside for no character."""
    return 0xD800 <= code <= 0xDFFF or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
