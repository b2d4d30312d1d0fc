"""Chromium over a gateway of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.web.scene import Scene, scene

ROOT = Path(__file__).parents[2]
SCREENSHOTS = Path(__file__).parent / "screenshots"
AXE = ROOT / ".cache" / "node" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
Screen = Literal["desk", "phone"]
Theme = Literal["light", "dark"]
SIZES: dict[Screen, tuple[int, int]] = {"desk": (1280, 800), "phone": (360, 740)}


@dataclass
class Desk:
    """A browser that has logged in, and whatever went wrong in it."""

    scene: Scene
    browser: Browser
    wrong: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, screen: Screen = "desk", theme: Theme = "light", **options: Any) -> AsyncIterator[Page]:
        """Log in, and give a page that notes every fault, every breach of the policy and every request elsewhere."""
        width, height = SIZES[screen]
        context = await self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, **options
        )
        try:
            yield await self.log_in(context)
        finally:
            await context.close()

    async def log_in(self, context: BrowserContext) -> Page:
        page = await context.new_page()
        page.on("pageerror", lambda fault: self.wrong.append(f"{page.url}: {fault}"))
        page.on("console", lambda said: self.wrong.append(f"{page.url}: {said.text}") if said.type == "error" else None)
        page.on("request", lambda asked: None if self._is_own(asked.url) else self.wrong.append(f"asks {asked.url}"))
        await page.goto(self.scene.url + await self.scene.login_path())
        await page.get_by_role("button", name="Log in").click()
        await page.wait_for_url(self.scene.url + "/")
        return page

    def _is_own(self, url: str) -> bool:
        return url.startswith((self.scene.url + "/", "data:"))

    async def show(self, page: Page, path: str) -> None:
        """Open a page and wait until it is live."""
        await page.goto(self.scene.url + path)
        await page.locator(".pulse.on").wait_for()

    async def barriers(self, page: Page) -> list[str]:
        """Have axe-core look at what is on the screen."""
        # By the debugger's way in: the page's policy forbids scripts that are not its own.
        if not await page.evaluate("'axe' in window"):
            await page.evaluate(AXE.read_text() + "\n;0")
        found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        return [f"{rule['id']}: {node['html']}" for rule in found["violations"] for node in rule["nodes"]]


def chromium() -> str:
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
    )
    if not found or not AXE.exists():
        pytest.fail("Chromium or axe-core is not installed: deploy/test installs them", pytrace=False)
    return found


@asynccontextmanager
async def desk_over(directory: Path, *, empty: bool = False) -> AsyncIterator[Desk]:
    SCREENSHOTS.mkdir(exist_ok=True)
    async with scene(directory, empty=empty) as found, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield Desk(found, browser)
        finally:
            await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    with tempfile.TemporaryDirectory() as directory:
        async with desk_over(Path(directory)) as found:
            yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare_desk() -> AsyncIterator[Desk]:
    with tempfile.TemporaryDirectory() as directory:
        async with desk_over(Path(directory), empty=True) as found:
            yield found
