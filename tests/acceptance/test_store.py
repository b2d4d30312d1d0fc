"""`wayside store copy` moves a stopped store to another backend, where a gateway goes on; `check` tries one out."""

from __future__ import annotations

import signal
from pathlib import Path

from engine.store.open import open_store
from tests.support.command import serving, wayside
from tests.support.postgres import database, shared_server


async def test_a_store_moves_to_postgresql_where_its_run_goes_on(data: Path) -> None:
    file = data / "wayside.db"
    async with database(shared_server()) as url:
        async with serving(data) as gateway:
            run = (await gateway.told("workflow", "run", "front-door"))["run"]
            await gateway.typed("signal", "front-door", "kitchen-verdict", '{"verdict": "intruder"}', "--json")
            waiting = (await gateway.told("workflow", "run", "front-door"))["run"]
        moved = (await wayside("store", "copy", str(file), "env:TO", "--json", TO=url)).json
        assert moved["records"] > 10
        source, target = open_store(str(file)), open_store(url)
        assert await source.list("") == await target.list("")
        await source.close()
        await target.close()
        file.unlink()
        async with serving(data, ("--store", url)) as gateway:
            assert (await gateway.told("run", "show", run))["status"] == "succeeded"
            answer = await gateway.told("signal", "front-door", "kitchen-verdict", '{"verdict": "known"}')
            assert answer["state"] == "delivered"
            shown = await gateway.told("run", "show", waiting)
            assert shown["status"] in {"running", "succeeded"}
        assert not file.exists()


async def test_a_store_that_a_gateway_uses_is_not_copied(data: Path, tmp_path: Path) -> None:
    async with serving(data) as gateway:
        ran = await wayside("store", "copy", str(data / "wayside.db"), str(tmp_path / "copy.db"), status=1)
        assert "uses the store" in ran.err
        gateway.process.send_signal(signal.SIGKILL)
        await gateway.process.wait()
    ran = await wayside("store", "copy", str(data / "wayside.db"), str(tmp_path / "copy.db"), status=1)
    assert "after a crash" in ran.err
    assert not (tmp_path / "copy.db").exists()


async def test_wrong_names_are_said_and_nothing_is_made(tmp_path: Path) -> None:
    nothing, copy = str(tmp_path / "nothing.db"), str(tmp_path / "copy.db")
    assert "there is no store" in (await wayside("store", "copy", nothing, copy, status=2)).err
    assert "the variable WHERE is not set" in (await wayside("store", "copy", "env:WHERE", copy, status=2)).err
    ran = await wayside("store", "copy", copy, "mystery://user:secret@host", status=2)
    assert "secret" not in ran.out + ran.err
    assert not (tmp_path / "nothing.db").exists()
    assert not (tmp_path / "copy.db").exists()


async def test_a_store_is_tried_out_and_the_doctor_does_the_same(data: Path) -> None:
    async with database(shared_server()) as url:
        checked = (await wayside("store", "check", "env:STORE", "--json", STORE=url)).json
        assert checked["ok"]
        assert [found["check"] for found in checked["findings"]][:2] == ["one winner", "order"]
        (data / "wayside.toml").write_text(f'store = "{url}"\n')
        doctor = (await wayside("doctor", "--data", str(data), "--json", status=None)).json
        assert {"store, one winner", "store, order"} <= {
            found["check"] for found in doctor["findings"] if found["result"] == "ok"
        }
    ran = await wayside("store", "check", "env:STORE", status=1, STORE=url)
    assert "does not exist" in ran.err
    assert "secret" not in ran.err
