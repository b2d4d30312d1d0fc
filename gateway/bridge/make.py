"""Put the bridge together from an instance's parts and its settings."""

from __future__ import annotations

from gateway.bridge.handling import Handling
from gateway.bridge.service import Bridge, BridgeOptions
from gateway.bridge.url import parse_url
from gateway.maps import Maps
from gateway.mqtt_door import MqttDoor
from gateway.services import Services
from gateway.settings import BridgeTable


def make_bridge(services: Services, maps: Maps) -> Bridge | None:
    """Make the bridge that the settings ask for; None when they name no broker."""
    table = services.settings.bridge
    if table.url is None:
        return None
    options = bridge_options(table, table.url, maps)
    door = MqttDoor(
        services.deliver, services.authority, services.limits, services.audit, services.source, door="bridge"
    )
    handling = Handling(
        door,
        authority=services.authority,
        registry=services.registry,
        audit=services.audit,
        source=services.source,
        maps=maps,
        address=options.url.address,
        short_form=table.short_form,
        ids_required=bool(table.share),
    )
    return Bridge(options, handling, services.engine, services.outbox, services.source, audit=services.audit)


def bridge_options(table: BridgeTable, url: str, maps: Maps) -> BridgeOptions:
    return BridgeOptions(
        url=parse_url(url),
        client_id=table.client_id,
        in_flight=table.in_flight,
        max_backlog_seconds=table.max_backlog,
        session_expiry_seconds=int(table.session_expiry),
        reconnect_max_seconds=table.reconnect_max,
        short_form=table.short_form,
        share=table.share,
        map_filters=tuple(maps.filters),
    )
