"""Prove a broker's rules: two throw-away devices try to be each other, and to hear each other.

The gateway itself is the witness. It answers every signal to the device that the topic names: if one device publishes
as the other, the other is answered. Each attempt has an id, and what was never answered is told from what is on its way
by an own message that is sent after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.bridge.connection import BrokerFault, Connection, Subscription, connect
from gateway.bridge.handshake import Options, Will
from gateway.bridge.heard import Heard
from gateway.bridge.url import BrokerUrl

WORKFLOW: Final = "doctor"
KEY: Final = "probe"
COMMANDS: Final = "wayside-doctor"
TAKE_OVER: Final = "take over a session"
PRESENCE: Final = "topic read d/+/status under the one user that is granted it"
LOGIN_SECONDS: Final = 15.0
ANSWER_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 0.3
# What the second device is granted: a key of its own, topics on which only workflows may send, and presence.
GRANTS: Final = (f"signal:{WORKFLOW}/{KEY}", f"listen:{COMMANDS}/#", "listen:d/+/status")


@dataclass(frozen=True, slots=True)
class Login:
    """A throw-away device."""

    name: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Found:
    """What one attempt showed. `rule` is what the broker lacks, in words; "" when it holds."""

    check: str
    text: str
    rule: str = ""
    line: str = ""

    @property
    def good(self) -> bool:
        return not self.rule

    @property
    def good_to_know(self) -> str:
        """Say which rule is missing, and the line (Mosquitto's; the exports write every broker's) that repairs it."""
        return f"missing: {self.rule}. Mosquitto: {self.line}" if self.rule else ""


@dataclass(slots=True)
class _Client:
    """A device's connection and everything that it has heard."""

    login: Login
    connection: Connection
    heard: list[Heard]
    came: asyncio.Event

    async def answered(self, signal_id: str, seconds: float = ANSWER_SECONDS) -> bool:
        """Wait for the gateway's answer to a signal id."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.has_answer(signal_id):
                    self.came.clear()
                    await self.came.wait()
        return self.has_answer(signal_id)

    def has_answer(self, signal_id: str) -> bool:
        return any(_id_of(message) == signal_id for message in self.heard)

    def heard_under(self, *heads: str) -> bool:
        return any(message.topic.startswith(heads) for message in self.heard)


def _id_of(message: Heard) -> str:
    try:
        value = json.loads(message.payload)
    except ValueError:
        return ""
    return str(value.get("id", "")) if isinstance(value, dict) else ""


class Probe:
    """Tries the rules of the broker at `url` as the devices `one` and `two`; `nonce` makes its ids its own."""

    def __init__(self, url: BrokerUrl, one: Login, two: Login, nonce: str) -> None:
        self._url = url
        self._one, self._two = one, two
        self._nonce = nonce[:12]
        self._ids = 0

    async def run(self, told: Callable[[Found], None]) -> None:
        """Make every attempt and tell what it showed; ends early when the devices cannot work at all."""
        if not await self._works(told):
            return
        for attempt in (
            self._anonymous,
            self._wrong_password,
            self._publish_as_another,
            self._short_form_of_another,
            self._answer_another,
            self._command,
            self._forge_the_gateway,
            self._will,
            self._listen,
            self._presence,
            self._take_over,
        ):
            try:
                for found in await attempt():
                    told(found)
            except BrokerFault as fault:
                told(Found(attempt.__name__.strip("_").replace("_", " "), f"could not be tried: {fault.reason}"))

    # -- the attempts ------------------------------------------------------------------------------------------------

    async def _works(self, told: Callable[[Found], None]) -> bool:
        """Log both in, and have both answered: without that, nothing below would prove anything."""
        for login in (self._one, self._two):
            reason, answered = "", False
            try:
                async with asyncio.timeout(LOGIN_SECONDS):
                    while True:
                        try:
                            async with self._client(login) as client:
                                answered = await self._asks(client)
                            break
                        except BrokerFault as fault:
                            # An export that follows the registry may be on its way.
                            reason = fault.reason
                            await asyncio.sleep(1.0)
            except TimeoutError:
                text = f"the broker does not let in a device that was just added ({reason})"
                told(
                    Found("login", text, "it has to learn of new devices", "wayside device export … --watch --reload …")
                )
                return False
            if not answered:
                text = "a device's own signal is not answered: it may not publish, or not hear its replies"
                line = "pattern write d/%u/signals/#  and  pattern read d/%u/replies/#"
                told(Found("own topics", text, "each device needs its own topics, and the bridge all of them", line))
                return False
        told(Found("own topics", "a new device gets in, signals, and is answered"))
        return True

    async def _anonymous(self) -> list[Found]:
        entered = await self._enters(replace(self._url, username=None, password=None), f"{self._one.name}-nobody")
        rule = "nobody gets in without a name" if entered else ""
        return [Found("anonymous", _got_in(entered, "a client without a name"), rule, "allow_anonymous false")]

    async def _wrong_password(self) -> list[Found]:
        url = replace(self._url, username=self._one.name, password="wrong")  # noqa: S106 - that is the point
        entered = await self._enters(url, self._one.name)
        rule = "nobody gets in without the right token" if entered else ""
        return [
            Found(
                "password",
                _got_in(entered, "a wrong token"),
                rule,
                "password_file …/wayside.passwd and allow_anonymous false",
            )
        ]

    async def _publish_as_another(self) -> list[Found]:
        topic = f"d/{self._two.name}/signals/{WORKFLOW}/{KEY}"
        came = await self._reaches(lambda signal_id: f"{topic}/{signal_id}")
        rule = "a device publishes under its own name alone" if came else ""
        line = "pattern write d/%u/signals/#, and no wider one such as d/+/signals/# or d/#"
        return [Found("publish as another", _reached(came, "d/<other>/signals/…"), rule, line)]

    async def _short_form_of_another(self) -> list[Found]:
        came = await self._reaches(lambda signal_id: f"signals/{WORKFLOW}/{KEY}/{signal_id}")
        rule = "the short form is for whoever is granted the key" if came else ""
        line = "topic write signals/WORKFLOW/KEY under the one user, and no pattern write signals/#"
        return [Found("short form of another", _reached(came, "signals/<workflow>/<key of another>"), rule, line)]

    async def _answer_another(self) -> list[Found]:
        came = await self._reaches(lambda _: f"d/{self._two.name}/replies/-/-/-/accepted")
        rule = "only the gateway answers" if came else ""
        line = "topic write # under the bridge's user alone; no pattern write wider than d/%u/signals/#, such as d/#"
        return [Found("answer another", _reached(came, "d/<other>/replies/…"), rule, line)]

    async def _command(self) -> list[Found]:
        came = await self._reaches(lambda signal_id: f"{COMMANDS}/{signal_id}")
        rule = "devices publish on their own topics alone: elsewhere are commands and other devices" if came else ""
        line = f"topic write # under the bridge's user alone; no pattern write # or {COMMANDS}/# for devices"
        return [Found("publish anywhere", _reached(came, "topics outside the map"), rule, line)]

    async def _forge_the_gateway(self) -> list[Found]:
        came = await self._reaches(lambda _: "gateway/wayside-doctor/status", also=("gateway/+/status",))
        rule = "only the gateway speaks under gateway/" if came else ""
        line = "pattern read gateway/+/status, and no write or readwrite there"
        return [Found("speak as the gateway", _reached(came, "gateway/…"), rule, line)]

    async def _will(self) -> list[Found]:
        signal_id = self._next_id()
        will = Will(topic=f"d/{self._two.name}/signals/{WORKFLOW}/{KEY}/{signal_id}", payload=b"{}", retain=False)
        async with self._client(self._two) as two:
            try:
                async with self._client(self._one, will=will) as one:
                    one.connection.abort()
            except BrokerFault:
                return [Found("will as another", "such a connection is refused")]
            came = await two.answered(signal_id, SETTLE_SECONDS * 4)
        rule = "a will is a PUBLISH like any other" if came else ""
        line = "pattern write d/%u/signals/#, and no wider one: a will is let through by the same lines"
        return [Found("will as another", _reached(came, "d/<other>/… by a will"), rule, line)]

    async def _listen(self) -> list[Found]:
        name, found = self._two.name, []
        filters = (f"d/{name}/replies/#", "d/+/replies/#", "#", f"$share/spies/d/{name}/replies/#", "d/+/status")
        for topic_filter in filters:
            heard = await self._hears(topic_filter)
            shown = topic_filter.replace(name, "<other>")
            text = f"{shown}: {'hears what is for another' if heard else 'gives nothing of another'}"
            rule = "a device hears its own replies, and what it is granted" if heard else ""
            line = "pattern read d/%u/replies/#, and no wider one such as d/+/replies/#"
            if topic_filter.endswith("/status"):
                line = f"{PRESENCE}, and no pattern read d/+/status"
            found.append(Found("listen to another", text, rule, line))
        return found

    async def _presence(self) -> list[Found]:
        signal_id, topic = self._next_id(), f"d/{self._one.name}/status"
        async with self._client(self._two, also=("d/+/status",)) as two, self._client(self._one) as one:
            await one.connection.publish(topic, json.dumps({"id": signal_id}).encode())
            came = await two.answered(signal_id)
        text = f"d/+/status: a device that is granted it {'hears' if came else 'does not hear'} another's presence"
        rule = "" if came else "who is granted presence hears it"
        return [Found("presence", text, rule, PRESENCE)]

    async def _take_over(self) -> list[Found]:
        async with self._client(self._two) as two:
            with contextlib.suppress(BrokerFault):
                async with self._client(self._one, client_id=self._two.name):
                    await asyncio.sleep(SETTLE_SECONDS)
            try:
                lost = not await self._asks(two)
            except BrokerFault:
                lost = True
        text = "another's client id ends its connection" if lost else "another's client id takes nothing from it"
        rule = "the client id belongs to the user name" if lost else ""
        # Of a listener's options none may be in a file that is included, as the export is.
        line = "use_username_as_clientid true, under each listener line of mosquitto.conf itself"
        return [Found(TAKE_OVER, text, rule, line)]

    # -- hands -------------------------------------------------------------------------------------------------------

    def _next_id(self) -> str:
        self._ids += 1
        return f"{self._nonce}-{self._ids}"

    async def _asks(self, client: _Client) -> bool:
        """Signal on the device's own topic; tell whether the gateway answered, whatever it said."""
        signal_id = self._next_id()
        await client.connection.publish(f"d/{client.login.name}/signals/{WORKFLOW}/{KEY}/{signal_id}", b"{}")
        return await client.answered(signal_id)

    async def _reaches(self, topic_of: Callable[[str], str], *, also: tuple[str, ...] = ()) -> bool:
        """Publish as the first device; tell whether the second hears of it before the answer to a later message."""
        signal_id = self._next_id()
        async with self._client(self._two, also=(f"{COMMANDS}/#", *also)) as two:
            with contextlib.suppress(BrokerFault):
                # A broker may close the connection instead of saying no.
                async with self._client(self._one) as one:
                    payload = json.dumps({"id": signal_id}).encode()
                    await one.connection.publish(topic_of(signal_id), payload)
                    await self._asks(one)
            await self._asks(two)
            return two.has_answer(signal_id) or await two.answered(signal_id, SETTLE_SECONDS)

    async def _hears(self, topic_filter: str) -> bool:
        try:
            async with self._client(self._one, also=(topic_filter,)) as one, self._client(self._two) as two:
                await two.connection.publish(f"d/{two.login.name}/status", b"{}")
                await self._asks(two)
                await self._asks(one)
                await asyncio.sleep(SETTLE_SECONDS / 2)
                return one.heard_under(f"d/{self._two.name}/")
        except BrokerFault:
            return False

    async def _enters(self, url: BrokerUrl, client_id: str) -> bool:
        try:
            async with connect(Options(url=url, client_id=client_id, version=3, keep=False), lambda _: None):
                return True
        except BrokerFault:
            return False

    @contextlib.asynccontextmanager
    async def _client(
        self, login: Login, *, client_id: str = "", will: Will | None = None, also: tuple[str, ...] = ()
    ) -> AsyncIterator[_Client]:
        """Connect as a device that listens to its own replies and to whatever else is tried."""
        heard: list[Heard] = []
        came = asyncio.Event()

        def hear(message: Heard) -> None:
            heard.append(message)
            came.set()
            if message.mid:
                connection.acknowledge((message.mid,))

        url = replace(self._url, username=login.name, password=login.token)
        options = Options(url=url, client_id=client_id or login.name, version=3, keep=False, will=will)
        connection: Connection
        async with connect(options, hear) as connection:
            await connection.subscribe([Subscription(f"d/{login.name}/replies/#")])
            for topic_filter in also:
                await connection.subscribe([Subscription(topic_filter)])
            yield _Client(login, connection, heard, came)


def _got_in(entered: bool, who: str) -> str:  # noqa: FBT001
    return f"{who} {'gets in' if entered else 'is refused'}"


def _reached(came: bool, where: str) -> str:  # noqa: FBT001
    return f"a device {'can' if came else 'cannot'} publish on {where}"
