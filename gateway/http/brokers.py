"""What brokers ask: may this client connect, may it publish or subscribe there; and the registry as a broker's files.

EMQX takes 200 with `allow` or `deny`, and any 4xx or 5xx for "ask somebody else": here it is never answered with one.
mosquitto-go-auth, on its own path, takes any 2xx for yes. Both show the shared secret of the settings; without one
configured, nobody is let in.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request, Response

from devices.credentials import digest
from devices.exports import emqx, mosquitto, nats
from devices.exports.access import BRIDGE_HEARS, BridgeUser, BrokerKind, Export, access
from devices.exports.verifiers import VerifierKind, maker
from devices.grants import covers
from devices.model import Device
from gateway.audit import Entry
from gateway.auth import Principal
from gateway.bridge.url import parse_url
from gateway.http.access import Parts, Who
from gateway.http.models import BrokerExport
from gateway.http.problems import documented
from gateway.services import Services

router: Final = APIRouter(tags=["brokers"])
_SEPARATORS: Final = (".", ":", "/", "~")  # none of them is in a name
_READ, _WRITE, _READ_WRITE, _SUBSCRIBE = "1", "2", "3", "4"


# -- files -----------------------------------------------------------------------------------------------------------


@router.get("/exports/{broker}", response_model=BrokerExport, responses=documented(401, 403, 422, 429, 503))
async def export_devices(
    broker: BrokerKind,
    parts: Parts,
    who: Who,
    directory: Annotated[str, Query(pattern=r"^/[^\x00-\x1f\x7f]*$", max_length=1024)] = mosquitto.DIRECTORY,
) -> dict[str, Any]:
    """Write users and access rules for a broker. Some files hold verifiers of tokens: an admin's to read.

    `directory` is where Mosquitto finds the files, as a whole path.
    """
    who.must_be_operator("admin")
    await parts.registry.refresh()
    made = export(parts, broker, directory)
    files = [{"name": it.name, "text": it.text, "secret": it.secret} for it in made.files]
    return {"broker": broker, "files": files, "warnings": list(made.warnings)}


def export(parts: Services, broker: BrokerKind, directory: str) -> Export:
    """Write a broker's files from the registry as it is known here."""
    user = bridge_user(parts, broker)
    devices = [device for device in parts.registry.devices() if device.name != user.name]
    match broker:
        case "mosquitto":
            return mosquitto.export(devices, user, directory=directory)
        case "emqx":
            return emqx.export(devices, user)
        case "nats":
            return nats.export(devices, user)


def bridge_user(parts: Services, broker: BrokerKind) -> BridgeUser:
    """Describe the gateway's own user, with its password in the broker's form where one is configured."""
    name, password = _bridge_login(parts)
    maps = tuple(dict.fromkeys(it.topic for it in parts.settings.map))
    if not password:
        return BridgeUser(name, maps=maps)
    return BridgeUser(name, verifiers=dict(_verifiers(broker, password)), digest=digest(password), maps=maps)


@lru_cache(maxsize=8)
def _verifiers(broker: BrokerKind, password: str) -> tuple[tuple[str, str], ...]:
    """Make the verifier of the bridge's password once: with another salt each time, every export would be a change."""
    kinds: list[VerifierKind] = [kind for kind in ("mosquitto", "nats") if kind == broker]
    return tuple(maker(kinds)(password).items())


def _bridge_login(parts: Services) -> tuple[str, str]:
    table = parts.settings.bridge
    url = parse_url(table.url) if table.url else None
    return (url.username if url is not None and url.username else table.client_id, (url and url.password) or "")


# -- EMQX ------------------------------------------------------------------------------------------------------------


@router.post("/brokers/emqx/authn", include_in_schema=False)
async def emqx_authenticate(request: Request, parts: Parts) -> Response:
    """Answer EMQX's HTTP authentication: `username`, `password`, `clientid` as JSON."""
    asked = await _asked(request) if _shown(request, parts) else None
    return _verdict(asked is not None and await _may_connect(parts, request, asked))


@router.post("/brokers/emqx/authz", include_in_schema=False)
async def emqx_authorize(request: Request, parts: Parts) -> Response:
    """Answer EMQX's HTTP authorisation: `username`, `action` (publish or subscribe) and `topic` as JSON."""
    asked = await _asked(request) if _shown(request, parts) else None
    if asked is None:
        return _verdict(allowed=False)
    action = asked.get("action", "")
    return _verdict(
        action in {"publish", "subscribe"}
        and _may(parts, asked.get("username", ""), asked.get("topic", ""), publish=action == "publish")
    )


def _shown(request: Request, parts: Services) -> bool:
    """Tell whether the broker shows the secret: `Authorization: Bearer <secret>`."""
    return _is_secret(parts, request.headers.get("authorization", "").removeprefix("Bearer "))


def _verdict(allowed: bool) -> Response:  # noqa: FBT001 - it is the whole of the answer
    text = json.dumps({"result": "allow" if allowed else "deny", "is_superuser": False})
    return Response(text, media_type="application/json")


# -- mosquitto-go-auth -----------------------------------------------------------------------------------------------


@router.post("/brokers/mosquitto-go-auth/{secret}/user", include_in_schema=False)
async def go_auth_user(secret: str, request: Request, parts: Parts) -> Response:
    """Answer `getuser_uri`: `username`, `password`, `clientid`; the secret is in the path, since it sends no header."""
    asked = await _asked(request) if _is_secret(parts, secret) else None
    return _status(asked is not None and await _may_connect(parts, request, asked))


@router.post("/brokers/mosquitto-go-auth/{secret}/superuser", include_in_schema=False)
async def go_auth_superuser(secret: str) -> Response:  # noqa: ARG001 - there is none, whoever asks
    """Answer `superuser_uri`: nobody is above the rules."""
    return _status(allowed=False)


@router.post("/brokers/mosquitto-go-auth/{secret}/acl", include_in_schema=False)
async def go_auth_acl(secret: str, request: Request, parts: Parts) -> Response:
    """Answer `aclcheck_uri`: `username`, `topic` and `acc` (1 read, 2 write, 3 both, 4 subscribe)."""
    asked = await _asked(request) if _is_secret(parts, secret) else None
    if asked is None:
        return _status(allowed=False)
    user, topic, acc = asked.get("username", ""), asked.get("topic", ""), asked.get("acc", "")
    hears = acc not in {_READ, _READ_WRITE, _SUBSCRIBE} or _may(parts, user, topic, publish=False)
    tells = acc not in {_WRITE, _READ_WRITE} or _may(parts, user, topic, publish=True)
    return _status(acc in {_READ, _WRITE, _READ_WRITE, _SUBSCRIBE} and hears and tells)


def _status(allowed: bool) -> Response:  # noqa: FBT001
    return Response(status_code=200 if allowed else 403)


# -- what they share -------------------------------------------------------------------------------------------------


def _is_secret(parts: Services, shown: str) -> bool:
    secret = parts.settings.bridge.auth_secret
    return bool(secret) and hmac.compare_digest(secret.encode(), shown.encode("utf-8", "surrogatepass"))


async def _asked(request: Request) -> Mapping[str, str] | None:
    """Read the fields of a question, as JSON or as a form; None when it cannot be read."""
    try:
        raw = await request.body()
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return dict(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=20))
        found = json.loads(raw)
    except Exception:  # noqa: BLE001 - too large, not text, not JSON: whatever it is, the answer is no
        return None
    if not isinstance(found, dict):
        return None
    return {str(name): str(value) for name, value in found.items() if isinstance(value, str | int)}


async def _may_connect(parts: Services, request: Request, asked: Mapping[str, str]) -> bool:
    user, password, client_id = (asked.get(name, "") for name in ("username", "password", "clientid"))
    bridge, expected = _bridge_login(parts)
    if user == bridge:
        return bool(expected) and hmac.compare_digest(expected.encode(), password.encode("utf-8", "surrogatepass"))
    if client_id and client_id != user and not client_id.startswith(tuple(user + it for it in _SEPARATORS)):
        # Else one device takes the session of another by its client id.
        parts.audit.refuse(Entry(action="login.refused", result="client_id", door="bridge"))
        return False
    address = request.client.host if request.client else ""
    who = await parts.authority.device(user, password.encode("utf-8", "surrogatepass"), address=address)
    if isinstance(who, Principal):
        return True
    principal = f"device:{who.name or '?'}"
    parts.audit.refuse(
        Entry(action="login.refused", result=who.reason, principal=principal, door="bridge", address=address)
    )
    return False


def _may(parts: Services, user: str, topic: str, *, publish: bool) -> bool:
    """Tell whether a user that the broker has let in may do this, as the registry is now."""
    bridge, _ = _bridge_login(parts)
    if user == bridge:
        filters = (*BRIDGE_HEARS, *(it.topic for it in parts.settings.map))
        return publish or any(covers(wide, topic) for wide in filters)
    device = parts.registry.device(user)
    if not isinstance(device, Device) or not device.active or not device.secrets:
        return False
    allowed = access(device)
    return allowed.may_publish(topic) if publish else allowed.may_subscribe(topic)
