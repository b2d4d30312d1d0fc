"""Proves that a WebSocket signals as every door does, tells what happens live, and lets in only whom it should."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from devices import operations
from engine.limits import MAX_PAYLOAD_BYTES
from gateway.http.admission import MAX_OF_ONE
from gateway.http.frames import FRAMES
from gateway.http.server import Server
from gateway.http.ws import MAX_FRAME_BYTES, MAX_MALFORMED
from tests.gateway.http.conftest import Door

KEY = {"workflow": "front-door", "key": "verdict"}
KNOWN = {"who": "known"}


@dataclass
class Sockets:
    """The HTTP door on a real port."""

    door: Door
    port: int

    async def open(self, token: str | None = None, **options: Any) -> ClientConnection:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        headers |= options.pop("headers", {})
        url = f"ws://{options.pop('named', '127.0.0.1')}:{self.port}/api/v1/ws"
        return await connect(url, additional_headers=headers, proxy=None, host="127.0.0.1", port=self.port, **options)

    async def device(self, *grants: str, name: str = "camera") -> str:
        return (await operations.add(self.door.services.registry, name, by="user:test", grants=grants)).token

    def admin(self) -> str:
        return (self.door.services.settings.data / "admin.token").read_text().strip()


@pytest.fixture
async def sockets(door: Door) -> AsyncIterator[Sockets]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = Server(door.app, grace_seconds=1)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(door.services.live.follow())
        group.create_task(server.serve([listening]))
        yield Sockets(door, listening.getsockname()[1])
        door.services.stopping.set()
        server.stop()
        following.cancel()
    listening.close()


async def hear(peer: ClientConnection) -> dict[str, Any]:
    text = await asyncio.wait_for(peer.recv(), 10)
    heard: dict[str, Any] = json.loads(text)
    return heard


async def ask(peer: ClientConnection, **message: object) -> dict[str, Any]:
    await peer.send(json.dumps(message))
    return await hear(peer)


async def test_a_signal_is_answered_by_a_receipt_with_its_ref(sockets: Sockets) -> None:
    run = await sockets.door.start()
    peer = await sockets.open(await sockets.device("signal:front-door/verdict", "read:front-door"))
    assert (await hear(peer)) == {"type": "ready", "v": 1, "principal": "device:camera"}
    answer = await ask(peer, type="signal", ref=7, **KEY, payload=KNOWN, id="one")
    assert (answer["type"], answer["ref"], answer["code"], answer["id"]) == ("receipt", 7, 202, "one")
    assert (answer["state"], answer["run"], answer["step"]) == ("delivered", run, "identify")
    again = await ask(peer, type="signal", ref="x", **KEY, payload=KNOWN, id="one")
    assert (again["ref"], again["receipt"], again["duplicate"]) == ("x", answer["receipt"], True)
    await peer.close()


async def test_delivered_and_held_are_the_same_bytes_to_one_who_may_only_signal(sockets: Sockets) -> None:
    peer = await sockets.open(await sockets.device("signal:front-door/verdict"))
    await hear(peer)
    texts = []
    for begin in (True, False):
        if begin:
            await sockets.door.start()
        await peer.send(json.dumps({"type": "signal", "ref": "r", **KEY, "payload": KNOWN, "id": f"id-{begin:d}"}))
        text = await peer.recv()
        assert isinstance(text, str)
        answer = json.loads(text)
        for field in ("id", "receipt", "at"):
            text = text.replace(answer[field], field * (len(answer[field]) // len(field)))
        texts.append(text)
    assert texts[0] == texts[1]
    states = {event.action for event in await _audit(sockets)}
    assert {"signal.delivered", "signal.held"} <= states
    await peer.close()


async def test_a_refusal_names_its_reason_and_the_ref(sockets: Sockets) -> None:
    peer = await sockets.open(await sockets.device("signal:front-door/verdict"))
    await hear(peer)
    refused = await ask(peer, type="signal", ref=1, workflow="front-door", key="strict", payload=KNOWN)
    assert (refused["type"], refused["ref"], refused["code"], refused["error"]) == ("refused", 1, 404, "not_found")
    wrong = await ask(peer, type="signal", ref=2, **KEY, payload={"who": "nobody"})
    assert (wrong["ref"], wrong["error"]) == (2, "invalid_payload")
    twice = '{"type":"signal","ref":3,"workflow":"front-door","key":"verdict","payload":{"who":1,"who":2}}'
    await peer.send(twice)
    assert (await hear(peer))["error"] == "bad_payload"
    await peer.close()


async def test_what_is_not_a_message_is_refused_and_goes_on_until_it_is_too_much(sockets: Sockets) -> None:
    peer = await sockets.open(sockets.admin())
    await hear(peer)
    for text in ("nonsense", "[]", '{"type":"dance","ref":"a"}', '{"type":"signal","ref":"b","more":1}'):
        await peer.send(text)
        assert (await hear(peer))["error"] == "bad_request"
    assert (await ask(peer, type="ping", ref=9)) == {"type": "pong", "ref": 9}
    for _ in range(MAX_MALFORMED - 4):
        await ask(peer, type="nothing")
    with pytest.raises(ConnectionClosed) as closed:
        await ask(peer, type="nothing")
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


async def test_a_payload_over_16_kib_is_refused_and_a_larger_frame_closes(sockets: Sockets) -> None:
    peer = await sockets.open(sockets.admin())
    await hear(peer)
    answer = await ask(peer, type="signal", ref=1, **KEY, payload={"who": "x" * MAX_PAYLOAD_BYTES})
    assert (answer["error"], answer["max_bytes"]) == ("payload_too_large", MAX_PAYLOAD_BYTES)
    with pytest.raises(ConnectionClosed) as closed:
        await ask(peer, type="signal", **KEY, payload={"who": "x" * MAX_FRAME_BYTES})
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


async def test_events_of_a_run_are_told_in_their_order(sockets: Sockets) -> None:
    peer = await sockets.open(await sockets.device("read:front-door", "signal:front-door/verdict"))
    await hear(peer)
    assert (await ask(peer, type="subscribe", ref=1, workflow="front-door"))["type"] == "subscribed"
    run = await sockets.door.start()
    events = [await hear(peer) for _ in range(4)]
    assert {event["run"] for event in events} == {run}
    assert [event["action"] for event in events] == ["run.created", "run.resumed", "wait.opened", "run.suspended"]
    await peer.close()


async def test_a_step_that_takes_a_held_signal_as_it_opens_shows_as_succeeded_and_never_suspends(
    sockets: Sockets,
) -> None:
    services = sockets.door.services
    (services.settings.workflow_directory / "one.yaml").write_text(
        "name: one\njobs:\n  - name: main\n    steps:\n      - name: wait\n"
        "        task: { type: wait_for_signal, key: it, acceptEarly: 60, timeout: 60 }\n"
    )
    services.engine.catalog.reload()
    peer = await sockets.open(sockets.admin())
    await hear(peer)
    assert (await ask(peer, type="signal", workflow="one", key="it", payload={}))["state"] == "held"
    await ask(peer, type="subscribe", workflow="one")
    await sockets.door.start("one")
    told: list[dict[str, Any]] = []
    while not told or told[-1]["action"] != "run.ended":
        told.append(await hear(peer))
    actions = [event["action"] for event in told if event["type"] == "event"]
    assert "run.suspended" not in actions
    ended = next(event for event in told if event["action"] == "step.ended")
    assert (ended["step"], ended["result"]) == ("wait", "succeeded")
    assert actions.index("signal.taken") < actions.index("step.ended")
    await peer.close()


async def test_a_workflow_that_may_not_be_read_is_not_there_to_subscribe_to(sockets: Sockets) -> None:
    peer = await sockets.open(await sockets.device("signal:front-door"))
    await hear(peer)
    for workflow in ("front-door", "no-such", "No Name"):
        refused = await ask(peer, type="subscribe", ref=workflow, workflow=workflow)
        assert (refused["type"], refused["error"], refused["ref"]) == ("refused", "not_found", workflow)
    await peer.close()


async def test_a_first_message_may_bring_the_token(sockets: Sockets) -> None:
    peer = await sockets.open()
    ready = await ask(peer, type="auth", token=await sockets.device("read:front-door"))
    assert ready["principal"] == "device:camera"
    await peer.close()
    other = await sockets.open()
    refused = await ask(other, type="auth", token="wsd_nothing")
    assert (refused["type"], refused["code"]) == ("refused", 401)
    with pytest.raises(ConnectionClosed):
        await other.recv()


async def test_a_wrong_token_in_the_request_is_refused_before_the_socket_opens(sockets: Sockets) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await sockets.open("wsd_wrong")
    assert refused.value.response.status_code == 401


async def test_another_origin_or_host_never_gets_in(sockets: Sockets) -> None:
    for options in ({"origin": "http://elsewhere.example"}, {"named": "elsewhere.example"}):
        with pytest.raises(InvalidStatus) as refused:
            await sockets.open(sockets.admin(), **options)
        assert refused.value.response.status_code == 403


async def test_the_pages_cookie_lets_in_from_the_pages_own_origin_alone(sockets: Sockets) -> None:
    services = sockets.door.services
    found = await services.authority.bearer(sockets.admin(), address="")
    redeemed = services.sessions.redeem(services.sessions.offer(found))  # type: ignore[arg-type]
    assert redeemed is not None
    cookie = {"Cookie": f"wayside_{sockets.port}={redeemed[0]}"}
    peer = await sockets.open(headers=cookie, origin=f"http://127.0.0.1:{sockets.port}")
    assert (await hear(peer))["principal"] == "user:admin"
    await peer.close()
    # Without an Origin no browser sent it: it has to say a token like everybody.
    other = await sockets.open(headers=cookie)
    assert (await ask(other, type="ping"))["code"] == 401
    await other.close()


async def test_a_socket_ends_with_the_pages_session(sockets: Sockets) -> None:
    services = sockets.door.services
    found = await services.authority.bearer(sockets.admin(), address="")
    redeemed = services.sessions.redeem(services.sessions.offer(found))  # type: ignore[arg-type]
    assert redeemed is not None
    cookie = {"Cookie": f"wayside_{sockets.port}={redeemed[0]}"}
    peer = await sockets.open(headers=cookie, origin=f"http://127.0.0.1:{sockets.port}")
    await hear(peer)
    services.sessions.end(redeemed[0])
    with pytest.raises(ConnectionClosed) as closed:
        await hear(peer)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.reason == "the session is over"


async def test_a_revoked_device_is_out_at_once_and_one_device_has_so_many_connections(sockets: Sockets) -> None:
    token = await sockets.device("read:front-door")
    peers = [await sockets.open(token) for _ in range(MAX_OF_ONE)]
    for peer in peers:
        await hear(peer)
    with pytest.raises(InvalidStatus) as refused:
        await sockets.open(token)
    assert refused.value.response.status_code == 503
    await operations.revoke(sockets.door.services.registry, "camera", by="user:test")
    for peer in peers:
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(peer.recv(), 5)


async def test_sockets_are_closed_when_the_gateway_stops(sockets: Sockets) -> None:
    peer = await sockets.open(sockets.admin())
    await hear(peer)
    sockets.door.services.stopping.set()
    with pytest.raises(ConnectionClosed) as closed:
        await asyncio.wait_for(peer.recv(), 5)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001


async def _audit(sockets: Sockets) -> list[Any]:
    from engine.records import Stored
    from gateway.audit import read_event

    services = sockets.door.services
    await services.audit.written()
    found = [read_event(record) for record in await services.engine.store.list("audit/")]
    return [event.value for event in found if isinstance(event, Stored)]


UPGRADE = (
    b"GET /api/v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PING, PONG, PIECE = b"\x89\x80\0\0\0\0", b"\x8a\x80\0\0\0\0", b"\x01\x80\0\0\0\0"


async def _upgraded(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


@pytest.mark.parametrize(
    "frames",
    [PING * 40_000, PONG * 40_000, PIECE + b"\0\x80\0\0\0\0" * 40_000],
    ids=["pings", "pongs", "pieces"],
)
async def test_a_flood_of_frames_that_say_nothing_closes_their_socket_and_no_other_waits_for_it(
    frames: bytes, sockets: Sockets
) -> None:
    socket = await sockets.open(await sockets.device("signal:front-door/verdict"))
    reader, writer = await _upgraded(sockets.port)
    writer.write(frames)
    # One after the other: the flood is one write, and would all be read before the second.
    for _ in range(3):
        await asyncio.wait_for(await socket.ping(), 5)
    pongs = 0
    # What it sent and nobody read has the system reset its connection.
    with contextlib.suppress(ConnectionResetError):
        while data := await asyncio.wait_for(reader.read(65_536), 10):
            pongs += data.count(b"\x8a\0")
    assert pongs <= FRAMES.burst + 60
    writer.close()
    await socket.close()


async def test_what_comes_in_one_go_is_read_in_its_order(sockets: Sockets) -> None:
    token = await sockets.device("signal:front-door/verdict")
    client = await sockets.open(token)
    await hear(client)
    numbers = range(60)
    for number in numbers:
        await client.send(json.dumps({"type": "ping", "ref": number}) + " " * 300)
    assert [(await hear(client))["ref"] for _ in numbers] == list(numbers)
    await client.close()


async def test_a_message_in_pieces_is_one(sockets: Sockets) -> None:
    token = await sockets.device("signal:front-door/verdict")
    client = await sockets.open(token)
    await hear(client)
    text = json.dumps({"type": "signal", **KEY, "payload": KNOWN, "ref": 1})
    await client.send([text[at : at + 7] for at in range(0, len(text), 7)])
    assert (await hear(client))["ref"] == 1
    await client.close()
