"""`wayside store copy|check`: move a stopped store to another backend; try out what a store promises."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated, Final

import typer

from engine import names
from engine.clock import SystemSource, rfc3339
from engine.errors import BadInput, Conflict
from engine.limits import STALE_AFTER_SECONDS
from engine.store.base import Store
from engine.store.check import Promise, check
from engine.store.copy import Copied, copy
from engine.store.open import open_store
from gateway.cli import output
from gateway.cli.client import settings_of
from gateway.cli.invocation import current
from gateway.cli.main import finish

app = typer.Typer(no_args_is_help=True, help="The store: move it to another backend, or try out what it promises.")
_WORDS: Final = {True: "ok", None: "warning", False: "failed"}
_STYLES: Final = {"ok": "green", "warning": "yellow", "failed": "red"}
_URL: Final = "a path, sqlite:///…, postgresql://…, nats://…, s3://…, gs://…; env:NAME takes it from a variable"


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="store")


@app.command("copy")
def copy_command(
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"the store of a stopped gateway: {_URL}")],
    target: Annotated[str, typer.Argument(metavar="TO", help="an empty one, written likewise")],
) -> None:
    """Copy a store that no gateway uses into an empty one, with every record's time, and compare them record by record.

    Then set `store` to the new one, and start the gateway. The old store is left as it is.
    """
    finish(_copy(_url(source), _url(target)))


@app.command("check")
def check_command(
    store: Annotated[str, typer.Argument(metavar="[STORE]", help=f"{_URL}; the configured one if none")] = "",
) -> None:
    """Try out with a few records, which are deleted again, that a store keeps its promises, and how quickly."""
    finish(_check(_url(store) if store else settings_of(current()).store_url))


async def promises(url: str) -> list[Promise]:
    """Try out the store that `url` names; raises what it raises."""
    store = open_store(url, create=False)
    try:
        return await check(store, SystemSource())
    finally:
        await store.close()


async def _copy(source_url: str, target_url: str) -> None:
    if source_url == target_url:
        raise BadInput("both names are of the same store")
    source = open_store(source_url, create=False)
    try:
        await _refuse_in_use(source)
        target = open_store(target_url)
        try:
            copied = await copy(source, target, progress=_progress)
            # A gateway that was started meanwhile may not have written yet.
            await _refuse_in_use(source)
        finally:
            await target.close()
    finally:
        await source.close()
    output.result(
        {
            "records": copied.records,
            "bytes": copied.volume,
            "digest": copied.digest,
            "latest": rfc3339(copied.highest) if copied.highest else None,
        },
        _told(copied),
    )


def _told(copied: Copied) -> str:
    return f"{copied.records} records ({copied.volume} bytes) were copied, and are the same in both, times included"


async def _refuse_in_use(source: Store) -> None:
    if not await source.list("", limit=1):
        raise BadInput("there is nothing in the store to copy", hint="is it the right one?")
    alive = await source.now() - timedelta(seconds=STALE_AFTER_SECONDS)
    for beat in await source.list(names.INSTANCES):
        if beat.stored_at > alive:
            raise Conflict(
                f"the gateway {names.instance_of(beat.key)} uses the store, or did so seconds ago",
                hint=f"stop it; after a crash, wait {STALE_AFTER_SECONDS:g} s",
            )


async def _check(url: str) -> int:
    found = await promises(url)
    failed = any(promise.kept is False for promise in found)
    if current().json:
        told = [{"check": p.name, "result": _WORDS[p.kept], "text": p.seen, "repair": p.repair} for p in found]
        output.emit({"ok": not failed, "findings": told})
        return 1 if failed else 0
    for promise in found:
        word = _WORDS[promise.kept]
        output.line(f"{output.styled(f'{word:<8}', _STYLES[word])}{promise.name}: {promise.seen}")
        if promise.repair:
            output.line(f"        {promise.repair}")
    return 1 if failed else 0


def _progress(records: int) -> None:
    if output.on_terminal() and not current().json:
        output.note(f"{records} records …")


def _url(text: str) -> str:
    """Take a URL as it is, or out of a variable: it may hold a password, which a command line shows to others."""
    if not text.startswith("env:"):
        return text
    name = text.removeprefix("env:")
    url = os.environ.get(name)
    if not url:
        raise BadInput(f"the variable {name} is not set")
    return url
