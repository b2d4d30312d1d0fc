"""The application behind the HTTP door: the routes of `/api/v1` and their description."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from engine.clock import rfc3339
from engine.names import INSTANCES, instance_of
from gateway.http import audit, brokers, devices, metrics, operators, problems, runs, signals, waits, workflows, ws
from gateway.http.access import Parts, Who
from gateway.http.admission import Admission
from gateway.http.models import Doors
from gateway.services import Services

PREFIX: Final = "/api/v1"


def create_app(services: Services, *, page: bool = True) -> FastAPI:
    """Make the application over the parts of one instance; it owns none of them and has no life of its own.

    Without `page` it is the API alone, which is quicker to make.
    """
    app = FastAPI(
        title="Wayside",
        version="1",
        description="Signals, runs, waits, devices and the audit log of a Wayside gateway.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # their pages load from another host
        redoc_url=None,
        generate_unique_id_function=_operation,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.admission = Admission(services.registry, services.authority)
    problems.install(app)
    for router in (
        signals.router,
        workflows.router,
        runs.router,
        waits.router,
        devices.router,
        audit.router,
        operators.router,
        brokers.router,
        ws.router,
        _router,
    ):
        app.include_router(router, prefix=PREFIX)
    app.include_router(metrics.router)
    if page:
        from gateway.web.routes import ROUTES  # noqa: PLC0415

        app.router.routes.extend(ROUTES)
    _describe_problems(app)
    return app


_router: Final = APIRouter(tags=["gateway"])


@_router.get("/doors", response_model=Doors, responses=problems.documented(401, 403, 429, 503))
async def doors(parts: Parts, who: Who) -> dict[str, Any]:
    """Say which instance answers, where it listens, what time the store has, and which instances share it."""
    who.must_be_operator("read")
    store = parts.engine.store
    last = {instance_of(record.key): record.stored_at for record in await store.list(INSTANCES)}
    return {
        "instance": parts.engine.instance,
        "doors": dict(parts.doors),
        "time": rfc3339(await store.now()),
        "instances": [{"instance": name, "last_beat": rfc3339(at)} for name, at in sorted(last.items())],
    }


def _operation(route: APIRoute) -> str:
    return route.name


def _describe_problems(app: FastAPI) -> None:
    """Put the problem document among the schemas that every error answer refers to."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        document = described()
        schema = problems.ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(schema.pop("$defs", {}))
        schemas["ProblemDocument"] = schema
        told = {str(status): said for status, said in problems.documented(400, 403, 413, 421, 422, 431).items()}
        for path in document["paths"].values():
            for operation in path.values():
                answers = operation["responses"]
                # From another origin, for another host, with too long a head; a body that is no text, or too long.
                for status in ("403", "421", "431", *(("400", "413") if "requestBody" in operation else ())):
                    answers.setdefault(status, told[status])
                # What the framework says of a malformed request is answered as a problem here.
                if "422" in answers:
                    answers["422"] = told["422"]
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
