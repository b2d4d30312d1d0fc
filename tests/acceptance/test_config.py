"""Proves that settings are shown with where they come from and without secrets, and what a reload does and does not."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx

from tests.support.command import Ran, Serving, serving, wayside

SECRETS = ("brokerpassword", "storepassword", "sharedsecret")


async def show(status: int, *options: str, **variables: str) -> Ran:
    return await wayside("config", "show", *options, given=b"", status=status, **variables)


async def test_every_setting_is_shown_with_its_origin_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "wayside.toml"
    file.write_text('mqqt = "x"\n\n[engine]\nretention = "30d"\n[bridge]\nauth_secret = "sharedsecret-sharedsecret"\n')
    (tmp_path / "url").write_text("mqtt://gateway:brokerpassword@broker.example:1883?protocol=3.1.1\n")
    variables = {
        "WAYSIDE_STORE": "postgresql://wayside:storepassword@db.example/wayside?sslmode=require",
        "WAYSIDE_BRIDGE__URL_FILE": str(tmp_path / "url"),
        "WAYSIDE_TRUSTED_PROXIES": "10.0.0.5, 10.1.0.0/16",
        "WAYSIDE_LOG__LEVEL": "debug",
    }
    ran = await show(0, "--json", "--data", str(tmp_path), **variables)
    shown = ran.json["settings"]
    assert {name: (it["value"], it["origin"]) for name, it in shown.items() if it["origin"] != "default"} == {
        "data": (str(tmp_path), "--data"),
        "engine.retention": (2_592_000.0, f"{file}:4"),
        "bridge.auth_secret": ("(not shown)", f"{file}:6"),
        "bridge.url": ("mqtt://…@broker.example:1883?…", "WAYSIDE_BRIDGE__URL_FILE"),
        "store": ("postgresql://…@db.example/wayside?…", "WAYSIDE_STORE"),
        "trusted_proxies": (["10.0.0.5", "10.1.0.0/16"], "WAYSIDE_TRUSTED_PROXIES"),
        "log.level": ("debug", "WAYSIDE_LOG__LEVEL"),
    }
    assert (shown["mqtt"]["value"], shown["workflows"]["value"]) == ("127.0.0.1:1883", str(tmp_path / "workflows"))
    assert f"{file}:1: there is no setting mqqt; did you mean mqtt?" in ran.err
    in_words = await show(0, "--data", str(tmp_path), **variables)
    assert f"engine.retention\t2592000\t{file}:4" in in_words.out
    assert not [secret for secret in SECRETS if secret in ran.out + ran.err + in_words.out + in_words.err]


async def test_with_mistakes_in_the_settings_all_of_them_are_named_and_none_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "wayside.toml"
    file.write_text('htpp = "127.0.0.1:1"\nmqtt = "0.0.0.0:1883"\n[engine]\nsweep_interval = "often"\n')
    ran = await show(2, "--data", str(tmp_path), WAYSIDE_HTTP="nowhere")
    assert ran.out == ""
    places = (f"{file}:1: there is no setting htpp; did you mean http?", f"{file}:2: mqtt: ", f"{file}:4: engine.sweep")
    assert [place for place in (*places, "WAYSIDE_HTTP: http: ") if place not in ran.err] == []
    far = await show(2, "--server", "http://127.0.0.1:1")
    assert "where the gateway runs" in far.err


async def reloaded(gateway: Serving, said: str) -> list[str]:
    """Send SIGHUP, and give what the log says from then on to the line with `said`."""
    before = len(gateway.log)
    gateway.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(20), gateway.more:
        await gateway.more.wait_for(lambda: any(said in line for line in gateway.log[before:]))
        return gateway.log[before:]


async def test_a_reload_takes_up_what_it_can_names_the_rest_and_keeps_all_when_something_is_wrong(data: Path) -> None:
    file = data / "wayside.toml"
    file.write_text("[limits]\nsignals_burst = 1\nsignals_per_second = 0.001\n")
    async with serving(data) as gateway, httpx.AsyncClient(base_url=f"http://{gateway.http}", trust_env=False) as http:
        token = (await gateway.told("device", "add", "camera", "--grant", "signal:front-door"))["token"]

        async def answers() -> list[int]:
            headers = {"authorization": f"Bearer {token}"}
            path = "/api/v1/signals/front-door/kitchen-verdict"
            return [(await http.post(path, content=b"{}", headers=headers)).status_code for _ in range(3)]

        assert await answers() == [422, 429, 429]
        assert (await http.get("/metrics")).status_code == 401

        file.write_text('metrics_open = yes\n[limits]\nsignals_burst = 0\n[log]\nlevle = "debug"\n')
        (line,) = await reloaded(gateway, "in force stay")
        assert f"{file}:1: " in line
        file.write_text('metrics_open = "?"\n[limits]\nsignals_burst = 0\n[log]\nlevle = "debug"\n')
        lines = "".join(await reloaded(gateway, "levle"))
        assert [
            it for it in (f"{file}:1: metrics_open: ", f"{file}:3: limits.signals_burst: ") if it not in lines
        ] == []
        assert f"{file}:5: there is no setting log.levle; did you mean log.level?" in lines
        assert await answers() == [429, 429, 429]
        assert (await http.get("/metrics")).status_code == 401

        file.write_text('metrics_open = true\nhttp_hosts = ["gateway.example"]\n[limits]\nsignals_per_second = 9999\n')
        lines = "".join(await reloaded(gateway, "settings reread"))
        assert '"taken":["metrics_open","limits.signals_per_second","limits.signals_burst"]' in lines
        assert '"settings":["http_hosts"],"event":"these settings take a restart"' in lines
        assert 422 in await answers()
        assert (await http.get("/metrics")).status_code == 200
        audited = (await gateway.typed("audit", "--json", "--action", "config.reread")).lines
        assert [(it["result"], it.get("reason", "")) for it in audited] == [
            ("refused", ""),
            ("refused", ""),
            ("taken", "metrics_open"),
            ("taken", "limits.signals_per_second"),
            ("taken", "limits.signals_burst"),
            ("takes_restart", "http_hosts"),
        ]
