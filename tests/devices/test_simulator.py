"""Proves that the simulator plays each scenario on real sockets, tells what went otherwise, and stands alone."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices import simulator
from devices.simulator import CuttingProxy, Device, Member, NotConnected, Plan, Play, Tally, read_cast
from tests.support.mosquitto import ANYBODY, mosquitto
from tests.support.responder import Responder, responding

SOURCE = Path(simulator.__file__)
TOKEN = "wsd_not-a-real-token"


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    async with mosquitto(tmp_path, *ANYBODY) as port:
        yield port


def cast(number: int = 1, workflow: str = "front-door", key: str = "kitchen-verdict") -> tuple[Member, ...]:
    return tuple(Member(device=f"camera-{n}", token=TOKEN, workflow=workflow, key=key) for n in range(number))


async def play(port: int, responder: Responder, **how: Any) -> Tally:
    given: dict[str, Any] = {"host": "127.0.0.1", "port": port, "cast": cast(), "timeout": 5.0}
    plan = Plan(**given | how)
    async with responding(responder, port):
        return await Play(plan).perform()


@pytest.mark.parametrize("start", [False, True])
async def test_kitchen_sends_a_refused_verdict_and_then_one_that_is_taken(port: int, start: bool) -> None:
    tally = await play(port, Responder(), scenario="kitchen", start=start)
    assert tally.problems == {}
    assert tally.answers == {(422, "invalid_payload"): 1, (202, ""): 1 + start}


async def test_early_finds_the_second_signal_refused_with_the_receipt_of_the_first(port: int) -> None:
    tally = await play(port, Responder(), scenario="early")
    assert tally.problems == {}
    assert tally.answers == {(202, ""): 1, (409, "early_signal_held"): 1}


async def test_late_finds_no_open_wait(port: int) -> None:
    tally = await play(port, Responder(accepts_early=False), scenario="late")
    assert tally.problems == {}
    assert tally.answers == {(409, "no_open_wait"): 1}


async def test_duplicate_finds_one_answer_for_all_repeats_of_a_signal(port: int) -> None:
    responder = Responder()
    tally = await play(port, responder, scenario="duplicate")
    assert tally.problems == {}
    assert tally.answers == {(202, ""): 3, (422, "signal_id_reused"): 1}
    assert len(responder.heard) == 4


@pytest.mark.parametrize("seed", range(6))
async def test_flaky_gets_one_receipt_for_a_signal_whose_first_publish_was_cut(port: int, seed: int) -> None:
    tally = await play(port, Responder(), scenario="flaky", seed=seed, start=True)
    assert tally.problems == {}
    assert tally.answers == {(202, ""): 3 + 6, (0, "connection_lost"): 3}


async def test_fleet_sends_the_planned_number_at_the_planned_rate(port: int) -> None:
    seen: list[tuple[int, int]] = []
    responder = Responder()
    crew = cast(8, workflow="fleet")
    tally = await play(
        port, responder, scenario="fleet", cast=crew, count=40, rate=400.0, progress=lambda *at: seen.append(at)
    )
    assert tally.problems == {}
    assert tally.answers == {(202, ""): 40}
    assert seen == [(n, 40) for n in range(1, 41)]
    assert {name: len(values) for name, values in tally.latencies.items()} == {"connect": 8, "PUBACK": 40, "reply": 40}


async def test_fleet_sends_again_on_a_new_connection_what_a_lost_one_left_unanswered(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator, "BACKOFF_SECONDS", (0.0, 0.0))
    responder = Responder()
    async with responding(responder, port), CuttingProxy("127.0.0.1", port) as proxy:
        plan = Plan(
            scenario="fleet",
            host="127.0.0.1",
            port=proxy.port,
            cast=cast(workflow="fleet"),
            count=6,
            rate=1000.0,
            progress=cut_first(proxy),
        )
        tally = await Play(plan).perform()
    assert tally.problems == {}
    assert tally.answers[202, ""] == 6
    assert tally.answers[0, "connection_lost"] >= 1
    assert len(responder.by_id) == 6


async def test_fleet_gives_up_a_signal_for_which_there_is_no_connection(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator, "BACKOFF_SECONDS", (0.0, 0.0))
    async with CuttingProxy("127.0.0.1", port) as proxy:
        hang_up = cut_first(proxy, for_good=True)
        plan = Plan(scenario="fleet", host="127.0.0.1", port=proxy.port, cast=cast(), count=1, progress=hang_up)
        tally = await Play(plan).perform()
    assert tally.answers == {(0, "connection_lost"): 1, (0, "not_connected"): simulator.RESENDS}
    assert tally.problems.total() == 1
    assert next(iter(tally.problems)).startswith("a signal was never answered: camera-0 could not connect")


def cut_first(proxy: CuttingProxy, *, for_good: bool = False) -> Callable[[int, int], None]:
    """Cut the connection in the middle of the first signal; with `for_good`, let no other one be made."""

    def progress(done: int, _total: int) -> None:
        if done == 1:
            proxy.cut_after(9)
            if for_good:
                proxy._server.close()

    return progress


async def test_the_same_seed_sends_the_same_payloads_in_the_same_order(port: int) -> None:
    heard = []
    for seed in (5, 5, 6):
        responder = Responder()
        await play(port, responder, scenario="fleet", cast=cast(1, workflow="fleet"), count=24, rate=1000.0, seed=seed)
        heard.append(responder.heard)
    assert heard[0] == heard[1] != heard[2]


async def test_storm_connects_everybody_at_once(port: int) -> None:
    tally = await play(port, Responder(), scenario="storm", cast=cast(60))
    assert tally.problems == {}
    assert len(tally.latencies["connect"]) == 60


async def test_storm_counts_those_who_were_kept_out(tmp_path: Path) -> None:
    async with mosquitto(tmp_path, *ANYBODY, "max_connections 5") as port:
        plan = Plan(scenario="storm", host="127.0.0.1", port=port, cast=cast(7), timeout=1.0)
        tally = await Play(plan).perform()
    assert len(tally.latencies["connect"]) == 5
    assert tally.answers == {(0, "not_connected"): 2}
    assert tally.problems.total() == 2


async def test_bad_finds_each_refusal(port: int) -> None:
    tally = await play(port, Responder(), scenario="bad")
    assert tally.problems == {}
    assert sorted(code for code, _ in tally.answers) == [400, 400, 404, 413, 422]


async def test_an_answer_that_a_scenario_does_not_expect_is_a_problem(port: int) -> None:
    tally = await play(port, Responder(lenient=True), scenario="kitchen")
    assert tally.problems == {
        "a verdict that the schema refuses: expected 422 invalid_payload, got 202": 1,
        "the verdict: expected 202, got 409 early_signal_held": 1,
    }


async def test_a_gateway_that_does_not_answer_is_told_from_one_that_hangs_up(port: int) -> None:
    async with (
        responding(Responder(silent=True), port),
        CuttingProxy("127.0.0.1", port) as proxy,
        Device("127.0.0.1", proxy.port, "camera", TOKEN, timeout=0.3) as device,
    ):
        silent = await device.signal("front-door", "kitchen-verdict", {"verdict": "known"})
        assert (silent.ok, silent.code, silent.error) == (False, 0, "no_reply")
        assert silent.acknowledged_ms is not None
        proxy.cut_after(5)
        for _ in range(2):  # the second one on a connection that is gone already
            lost = await device.signal("front-door", "kitchen-verdict", {"verdict": "known"})
            assert (lost.code, lost.error, lost.acknowledged_ms) == (0, "connection_lost", None)


async def test_two_equal_signals_in_flight_get_an_answer_each(port: int) -> None:
    async with responding(Responder(), port), Device("127.0.0.1", port, "camera", TOKEN) as device:
        answers = await asyncio.gather(
            *(device.signal("front-door", "kitchen-verdict", {"verdict": "known"}) for _ in range(2))
        )
    assert sorted(answer.code for answer in answers) == [202, 409]


async def run_alone(*arguments: str, token: str = TOKEN) -> tuple[int | None, str, str]:
    """Run the file as a Raspberry Pi does: by its path, away from the checkout."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SOURCE),
        *arguments,
        env={"WAYSIDE_TOKEN": token} if token else {},
        cwd="/",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await program.communicate()
    return program.returncode, out.decode(), err.decode()


async def test_the_file_runs_by_itself_and_prints_a_table_of_answers_and_latencies(port: int) -> None:
    async with responding(Responder(), port):
        status, out, err = await run_alone("kitchen", "--port", str(port), "--device", "camera")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "kitchen: 1 device(s), seed 1"
    assert [line.split() for line in lines[3:5]] == [["202", "1"], ["422", "invalid_payload", "1"]]
    assert [line.split()[0] for line in lines[7:10]] == ["connect", "PUBACK", "reply"]
    assert lines[-1] == "as expected"


async def test_json_is_one_object_and_the_exit_status_tells_of_a_problem(port: int) -> None:
    async with responding(Responder(lenient=True), port):
        status, out, _ = await run_alone("kitchen", "--port", str(port), "--device", "camera", "--json")
    summary = json.loads(out)
    assert status == 1
    assert summary["ok"] is False
    assert summary["answers"] == [
        {"code": 202, "error": None, "count": 1},
        {"code": 409, "error": "early_signal_held", "count": 1},
    ]
    assert summary["latency_ms"]["reply"]["count"] == 2
    assert len(summary["problems"]) == 2


async def test_a_refused_connection_is_said_in_a_line_without_the_token(tmp_path: Path) -> None:
    async with mosquitto(tmp_path, "allow_anonymous false") as port:
        status, out, err = await run_alone("early", "--port", str(port), "--device", "camera")
        with pytest.raises(NotConnected):
            async with Device("127.0.0.1", port, "camera", TOKEN):
                pass
    assert (status, out) == (1, "")
    assert err.startswith("simulator: camera could not connect")
    assert err.count("\n") == 1
    assert TOKEN not in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kitchen", "--device", "camera"], "say who signals"),
        (["dance"], "invalid choice"),
        (["kitchen", "--credentials", "/nowhere/devices.csv"], "No such file"),
        (["kitchen", "--payload", "{", "--device", "camera"], "--payload"),
    ],
)
async def test_wrong_usage_is_exit_status_2(arguments: list[str], said: str) -> None:
    status, out, err = await run_alone(*arguments, token="")
    assert (status, out) == (2, "")
    assert said in err


def test_credentials_are_read_from_csv_and_from_json_lines() -> None:
    text = 'device,token\ncamera,abc\nbell,"d,e",porch,ring\n\n{"device": "lock", "token": "f", "key": "turned"}\n'
    assert read_cast(text, "front-door", "kitchen-verdict") == (
        Member(device="camera", token="abc", workflow="front-door", key="kitchen-verdict"),
        Member(device="bell", token="d,e", workflow="porch", key="ring"),
        Member(device="lock", token="f", workflow="front-door", key="turned"),
    )


def test_a_token_is_in_no_representation() -> None:
    assert TOKEN not in repr(Plan(scenario="kitchen", host="h", port=1, cast=cast()))


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_measured_values_in_order(values: list[float]) -> None:
    tally = Tally(latencies={"reply": values})
    spread = tally.summary()["latency_ms"]["reply"]
    assert spread["count"] == len(values)
    assert spread["p50"] <= spread["p90"] <= spread["p99"] <= spread["max"] == round(max(values), 2)
    assert {spread["p50"], spread["p90"], spread["p99"]} <= {round(value, 2) for value in values}


def test_the_file_imports_the_standard_library_and_aiomqtt_alone() -> None:
    imported = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add((node.module or "").partition(".")[0])
    assert imported - sys.stdlib_module_names == {"aiomqtt"}


async def test_a_proxy_that_is_left_in_the_middle_of_a_connection_ends_it_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        async with CuttingProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            while not proxy._serving:  # accepted
                await asyncio.sleep(0)
        await asyncio.wait_for(ended.wait(), 10)
        writer.close()
        await asyncio.sleep(0)
    assert not caplog.records
