"""Proves that each page can be read and used by everybody: on a desk and on a phone, light and dark, by keyboard."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Page, Response, expect

from tests.web.conftest import SCREENSHOTS, SIZES, Desk, Screen, Theme

pytestmark = pytest.mark.asyncio(loop_scope="module")


def pages(desk: Desk) -> dict[str, str]:
    scene = desk.scene
    return {
        "overview": "/",
        "keys": "/keys",
        "runs": "/runs",
        "run-waiting": f"/runs/{scene.suspended}",
        "run-failed": f"/runs/{scene.failed}",
        "run-succeeded": f"/runs/{scene.succeeded}",
        "devices": "/devices",
        "device": "/devices/kitchen-camera",
        "workflows": "/workflows",
        "workflow": "/workflows/greenhouse",
        "broken": "/workflows/files/letter-box.yaml",
        "audit": "/audit",
        "audit-nothing": "/audit?device=nobody",
    }


async def open_all(page: Page) -> None:
    """Unfold what is folded, and open one menu: a page is looked at with all of it and without any of it."""
    await page.evaluate("for (const it of document.querySelectorAll('details:not(.confirm, .drop)')) it.open = true")
    menu = page.locator("details:is(.confirm, .drop) > summary").first
    if await menu.count():
        await menu.click()


async def fits_the_screen(page: Page) -> bool:
    fits: bool = await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return fits


@pytest.mark.parametrize(("screen", "themes"), [("desk", ("light", "dark")), ("phone", ("dark", "light"))])
async def test_every_page_fits_the_screen_and_axe_finds_no_barrier(
    desk: Desk, screen: Screen, themes: tuple[Theme, Theme]
) -> None:
    found: list[str] = []
    async with desk.open(screen, themes[0]) as page:
        for name, path in pages(desk).items():
            await page.emulate_media(color_scheme=themes[0])
            await desk.show(page, path)
            for theme in themes:
                if theme == themes[1]:
                    await page.emulate_media(color_scheme=theme)
                    await open_all(page)
                if not await fits_the_screen(page):
                    found.append(f"{name} is wider than the screen, {theme}")
                await page.screenshot(path=SCREENSHOTS / f"{name}-{screen}-{theme}.png", full_page=True)
                found += [f"{name}, {theme}: {barrier}" for barrier in await desk.barriers(page)]
    assert found == []
    assert desk.wrong == []


@pytest.mark.parametrize("screen", ["desk", "phone"])
async def test_the_way_in_and_empty_pages_say_what_to_type_next(bare_desk: Desk, screen: Screen) -> None:
    scene = bare_desk.scene
    found: list[str] = []
    context = await bare_desk.browser.new_context()
    page = await context.new_page()
    await page.goto(scene.url + "/runs")
    assert page.url == scene.url + "/login"
    await expect(page.locator("main")).to_contain_text("wayside login")
    found += await bare_desk.barriers(page)
    await page.screenshot(path=SCREENSHOTS / f"login-{screen}.png")
    await context.close()
    expected = {"/": "front-door.yaml", "/keys": "wait_for_signal", "/runs": "no workflow", "/devices": "device add"}
    expected |= {"/workflows": "front-door.yaml", "/audit": "login"}
    async with bare_desk.open(screen) as page:
        for path, text in expected.items():
            await bare_desk.show(page, path)
            await expect(page.locator("main")).to_contain_text(text)
            await page.screenshot(path=SCREENSHOTS / f"empty-{path.strip('/') or 'overview'}-{screen}.png")
            found += [f"{path}: {barrier}" for barrier in await bare_desk.barriers(page)]
    assert found == []
    assert bare_desk.wrong == []


@pytest.mark.parametrize(("screen", "theme"), [("desk", "dark"), ("phone", "light")])
async def test_the_description_of_the_api_is_there_without_a_login_and_without_another_host(
    desk: Desk, screen: Screen, theme: Theme
) -> None:
    width, height = SIZES[screen]
    context = await desk.browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    asked: list[str] = []
    try:
        page = await context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        answer = await page.goto(desk.scene.url + "/docs")
        assert answer is not None
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        document = await (await context.request.get(desk.scene.url + "/api/v1/openapi.json")).json()
        operations = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
        shown = await page.locator(".operation .method").count()
        assert shown == len(operations) > 30
        operation = page.locator("#signal_key")
        await operation.locator("summary").focus()
        await page.keyboard.press("Enter")
        await expect(operation).to_contain_text("Idempotency-Key")
        await expect(operation.locator(".command")).to_contain_text(f"{desk.scene.url}/api/v1/signals/")
        await operation.get_by_role("link", name="ReceiptView").click()
        await expect(page.locator("#schema-ReceiptView")).to_contain_text("held_until")
        assert all(url.startswith(desk.scene.url + "/") for url in asked)
        assert len(asked) > 2
        assert await fits_the_screen(page)
        await page.screenshot(path=SCREENSHOTS / f"docs-{screen}-{theme}.png", full_page=True)
        # All the others are like these: axe takes long over a hundred of a kind.
        await page.evaluate(
            "for (const it of [...document.querySelectorAll('.operation:not([open])')].slice(3)) it.remove()"
        )
        assert await desk.barriers(page) == []
    finally:
        await context.close()


async def test_the_page_is_small(desk: Desk) -> None:
    sizes: dict[str, int] = {}
    async with desk.open() as page:

        def note(answer: Response) -> None:
            sizes[answer.url] = int(answer.headers.get("content-length", "0"))

        page.on("response", note)
        await desk.show(page, f"/runs/{desk.scene.succeeded}")
    assert 0 < sum(sizes.values()) < 100_000, sizes


async def test_a_run_fills_in_live_and_a_test_signal_is_sent_by_keyboard_alone(desk: Desk) -> None:
    run = await desk.scene.start("front-door", camera="kitchen")
    async with desk.open() as page:
        # Another run holds the key by now, so that this one is told at once.
        await desk.scene.until(run, "succeeded", "failed", "suspended")
        await desk.show(page, f"/runs/{desk.scene.suspended}")
        step = page.locator("#step-identify")
        await expect(step.locator(".state")).to_have_text("waiting")
        await page.evaluate("window.same = true")
        await step.locator("summary", has_text="Send a test signal").focus()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.name") == "payload"
        assert json.loads(await page.evaluate("document.activeElement.value")) == {"verdict": "known"}
        await page.keyboard.press("Control+a")
        await page.keyboard.type('{"verdict": "nobody"}')
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(step.locator("output")).to_contain_text("/verdict: enum")
        await step.locator("textarea").fill('{"verdict": "intruder"}')
        await step.get_by_role("button", name="Send").press("Enter")
        await expect(page.locator("#r-head .state")).to_have_text("succeeded")
        await expect(step.locator(".state")).to_have_text("succeeded")
        await expect(page.locator("#step-alarm .state")).to_have_text("succeeded")
        await expect(page.locator(".graph.wide .node.good")).to_have_count(3)
        await expect(page.locator("#say")).to_have_text("Run succeeded")
        await expect(step).to_contain_text("receipt")
        assert await page.evaluate("window.same"), "the page was loaded again"
    assert desk.wrong == []


async def test_a_run_says_why_a_step_was_skipped(desk: Desk) -> None:
    async with desk.open() as page:
        await desk.show(page, f"/runs/{desk.scene.failed}")
        await expect(page.locator("#step-minutes")).to_contain_text("what it depends on ended otherwise")


async def test_the_overview_counts_what_others_do(desk: Desk) -> None:
    async with desk.open() as page:
        await desk.show(page, "/")
        before = int(await page.locator(".tiles .held b").inner_text())
        (await desk.scene.signal("night-light/dusk", {})).raise_for_status()
        await expect(page.locator(".tiles .held b")).to_have_text(str(before + 1))
        await expect(page.locator("#r-held")).to_contain_text("night-light / dusk")
        await expect(page.locator("#r-held time").first).to_contain_text("left")


async def test_a_run_is_started_cancelled_and_deleted(desk: Desk) -> None:
    async with desk.open() as page:
        await desk.show(page, "/runs")
        await page.locator("summary", has_text="Start a run").click()
        await page.get_by_label("Workflow").first.select_option("greenhouse")
        inputs = page.get_by_label("Inputs, a JSON object")
        await expect(inputs).to_have_value('{\n  "dry": true\n}')
        await page.get_by_role("button", name="Start", exact=True).click()
        await page.wait_for_url("**/runs/*")
        # The signal that was held for it is taken as the step opens.
        await expect(page.locator("#r-head .state")).to_have_text("succeeded")
        await page.locator("summary", has_text="Delete").click()
        await page.get_by_role("button", name="Delete the run").click()
        await expect(page.get_by_role("status").first).to_contain_text("is being removed")
        other = await desk.scene.start("greenhouse", dry=True)
        await desk.scene.until(other, "suspended")
        await desk.show(page, f"/runs/{other}")
        await page.locator("summary", has_text="Cancel").click()
        await page.get_by_role("button", name="Cancel the run").click()
        await expect(page.locator("#r-head .state")).to_have_text("cancelled")
        await expect(page.get_by_role("status").first).to_contain_text("Cancelled")
    assert desk.wrong == []


async def test_a_device_is_added_with_its_token_shown_once_and_taken_out_again(desk: Desk) -> None:
    async with desk.open() as page:
        await desk.show(page, "/devices")
        await page.locator("summary", has_text="Add a device").click()
        await page.get_by_label("Name").fill("porch-camera")
        await page.get_by_label("Grants").fill("signal:front-door\nread:front-door")
        await page.get_by_role("button", name="Add", exact=True).click()
        token = await page.locator("#token").inner_text()
        assert token.startswith("wsd_")
        await expect(page.locator(".paste")).to_contain_text(f"mosquitto_pub -h 127.0.0.1 -p {desk.scene.gateway.mqtt}")
        assert await desk.barriers(page) == []
        await page.screenshot(path=SCREENSHOTS / "issued-desk-light.png", full_page=True)
        await desk.show(page, "/devices/porch-camera")
        assert token not in await page.content()
        await page.get_by_label("Another grant").fill("signal:no colon here")
        await page.get_by_role("button", name="Grant", exact=True).click()
        await expect(page.get_by_role("status").first).to_contain_text("not a grant")
        await page.get_by_role("button", name="Take away read:front-door").click()
        await expect(page.locator("#r-grants li")).to_have_count(1)
        await page.locator("summary", has_text="Revoke").click()
        await page.get_by_role("button", name="Revoke all tokens").click()
        await expect(page.locator("#r-tokens")).to_contain_text("no token")
    assert desk.wrong == []


async def test_the_first_tab_skips_to_the_content_and_escape_closes_a_menu(desk: Desk) -> None:
    async with desk.open() as page:
        await desk.show(page, "/devices")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Name")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_label("Name")).to_be_hidden()


async def test_light_and_dark_follow_the_system_until_they_are_chosen(desk: Desk) -> None:
    async with desk.open(theme="dark") as page:
        await desk.show(page, "/")
        background = "getComputedStyle(document.body).backgroundColor"
        dark = await page.evaluate(background)
        await page.get_by_role("button", name="Switch between light and dark").click()
        light = await page.evaluate(background)
        assert light != dark
        await page.reload()
        assert await page.evaluate(background) == light


async def test_without_its_script_the_page_still_does_everything(desk: Desk) -> None:
    async with desk.open(java_script_enabled=False) as page:
        await page.goto(desk.scene.url + "/keys")
        card = page.locator("#greenhouse-minutes")
        await card.locator("summary").click()
        await card.get_by_label("Payload").fill('{"minutes": 7}')
        await card.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("status")).to_contain_text("Held until")


async def test_after_logging_out_the_page_is_closed(desk: Desk) -> None:
    async with desk.open() as page:
        await page.get_by_role("button", name="Log out").click()
        await page.wait_for_url("**/login")
        await page.goto(desk.scene.url + "/audit")
        assert page.url.endswith("/login")
