"""Keys survive being NATS subjects; a bucket that does not keep a store's promises is refused; refusals are clear."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js import api

from engine.errors import BadInput, StoreDamaged, StoreUnavailable
from engine.store.nats import NatsStore, parse
from engine.store.nats.subjects import CLOCK, decode, encode, wildcard
from engine.store.open import open_store
from tests.support.mosquitto import free_port
from tests.support.nats import Cluster, bucket, cluster, shared_cluster


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with bucket(shared_cluster()) as url:
        yield url


async def fault_of(url: str) -> StoreUnavailable:
    store = open_store(url)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            await store.get("a")
    finally:
        await store.close()
    assert "secret" not in caught.value.message + caught.value.hint
    return caught.value


_KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00") | st.sampled_from("/.*>=-_ \r\n"))


@given(_KEYS.filter(bool))
def test_a_key_comes_back_from_its_subject(key: str) -> None:
    subject = encode(key)
    assert decode(subject) == key
    assert subject.isascii()
    assert not set(subject) & set(" \r\n\t*>")
    assert all(subject.split("."))
    assert subject != CLOCK


@given(_KEYS, _KEYS)
def test_a_wildcard_covers_every_key_with_the_prefix(prefix: str, rest: str) -> None:
    key = prefix + rest
    tail = wildcard(prefix).removesuffix(">")
    if key and key != prefix.rpartition("/")[0]:
        assert encode(key).startswith(tail)
        assert len(encode(key)) > len(tail)


@given(_KEYS.filter(bool), _KEYS.filter(bool))
def test_two_keys_never_share_a_subject(one: str, other: str) -> None:
    assert (encode(one) == encode(other)) == (one == other)


def test_the_clocks_subject_is_no_key() -> None:
    assert decode(CLOCK) is None


async def test_direct_gets_are_off_and_every_replica_is_asked_for(url: str) -> None:
    store = open_store(url)
    await store.create("a/1", b"value")
    await store.close()
    client = await shared_cluster().client()
    config = (await client.jetstream().stream_info(f"KV_{parse(url).bucket}")).config
    await client.close()
    assert not config.allow_direct
    assert (config.num_replicas, config.max_msgs_per_subject, config.storage) == (3, 1, "file")


async def test_a_bucket_that_others_made_with_direct_gets_is_refused(url: str) -> None:
    client = await shared_cluster().client()
    await client.jetstream().create_key_value(config=api.KeyValueConfig(bucket=parse(url).bucket, direct=True))
    await client.close()
    fault = await fault_of(url)
    assert isinstance(fault, StoreDamaged)
    assert "allow_direct must be off" in fault.message


async def test_ten_instances_that_start_at_once_share_one_bucket(url: str) -> None:
    stores = [open_store(url) for _ in range(10)]
    records = await asyncio.gather(*(store.create("a", str(at).encode()) for at, store in enumerate(stores)))
    assert len(set(records)) == 1
    for store in stores:
        await store.close()


async def test_a_bucket_that_was_removed_is_said_to_be_gone_and_its_records_are_not_called_absent(url: str) -> None:
    store = open_store(url)
    await store.create("a", b"")
    client = await shared_cluster().client()
    await client.jetstream().delete_stream(f"KV_{parse(url).bucket}")
    await client.close()
    with pytest.raises(StoreUnavailable):
        await store.get("a")
    await store.close()


async def test_servers_that_are_not_there_are_said_to_be_away() -> None:
    fault = await fault_of(f"nats://user:secret@127.0.0.1:{free_port()}/records")
    assert "cannot be reached" in fault.message
    assert not fault.uncertain


@pytest.fixture
async def strict() -> AsyncIterator[Cluster]:
    with cluster(1, "authorization { user: gateway, password: right-secret }", "max_payload: 1MB") as one:
        yield one


async def test_a_wrong_password_is_said_at_once(strict: Cluster) -> None:
    fault = await fault_of(f"nats://gateway:wrong-secret@127.0.0.1:{strict.nodes[0].port}/records")
    assert "refuse the user gateway" in fault.message


async def test_servers_that_take_no_large_record_are_refused(strict: Cluster) -> None:
    fault = await fault_of(f"nats://gateway:right-secret@127.0.0.1:{strict.nodes[0].port}/records")
    assert "max_payload: 2MB" in fault.hint


async def test_one_server_by_itself_makes_a_bucket_without_replicas() -> None:
    with cluster(1) as one:
        store = open_store(one.url("records", replicas=3))
        assert isinstance(store, NatsStore)
        assert (await store.create("a", b"mine")).value == b"mine"
        await store.close()


@pytest.mark.parametrize(
    "url",
    [
        "nats:", "nats://", "nats://host", "nats://u:secret@host/a.b", "nats://u:secret@host/a/b",
        "nats://u:secret@host/b?replicas=2", "nats://u:secret@host/b?secret=1x", "nats://u:secret@host/b#x",
    ],
)  # fmt: skip
def test_a_url_that_names_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_store(url)
    assert "u:secret" not in caught.value.message + caught.value.hint


def test_a_missing_driver_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "nats" or name.startswith(("nats.", "engine.store.nats"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(BadInput) as caught:
        open_store("nats://127.0.0.1/records")
    assert "wayside[nats]" in caught.value.hint
