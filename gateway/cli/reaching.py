"""A gateway that a command does not get through to: which address was tried, what came of it, and what to do."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from engine.errors import WaysideError

if TYPE_CHECKING:
    import httpx

EXIT_STATUS: Final = 3


class NoGateway(WaysideError):
    """No gateway's answer was had. `url` is what was tried, without what may stand before an @ in it."""

    def __init__(self, url: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.url = url

    @property
    def document(self) -> dict[str, Any]:
        return {"error": self.code, "detail": self.message, "url": self.url, "hint": self.hint}


class Unreachable(NoGateway):
    """Nothing took the connection: nothing was asked."""

    code: ClassVar[str] = "unreachable"


class TlsFailed(NoGateway):
    """The connection was not made safe: nothing was asked."""

    code: ClassVar[str] = "tls_failed"


class NoAnswer(NoGateway):
    """The request was sent, and no answer came: what it asked for may have been done all the same."""

    code: ClassVar[str] = "no_answer"


class NotAGateway(NoGateway):
    """What answered is something else, or a proxy in the gateway's place."""

    code: ClassVar[str] = "not_a_gateway"


class Answer(dict[str, Any]):
    """A gateway's answer; a member that each such answer has, and this one has not, says that it is none."""

    url: str = ""

    def __missing__(self, member: str) -> NoReturn:
        raise not_a_gateway(self.url, f"its answer has no {member!r}")


def address(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"


def of_fault(url: str, fault: httpx.HTTPError) -> NoGateway:
    """Name what became of a request that got no answer."""
    import httpx

    if (tls := _tls(fault)) is not None:
        return _tls_failed(url, tls)
    match fault:
        case httpx.ConnectError():
            why = _reason(fault)
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            why = "it took no connection in time"
        case httpx.TimeoutException():
            return _no_answer(url, "in time")
        case _:
            return _no_answer(url, f"in full ({type(fault).__name__})")
    return Unreachable(
        url,
        f"the gateway at {url} did not answer: {why}",
        hint="`wayside serve` starts one; --server URL (or WAYSIDE_SERVER) names one that runs elsewhere",
    )


def not_a_gateway(url: str, what: str) -> NotAGateway:
    return NotAGateway(
        url,
        f"what answers at {url} is not a Wayside gateway: {what}",
        hint="--server names the gateway's HTTP door, http:// or https:// as it serves it; "
        "a proxy before it may answer in its place while it is away",
    )


def _no_answer(url: str, how: str) -> NoAnswer:
    return NoAnswer(
        url,
        f"the gateway at {url} did not answer {how}",
        hint="what was asked for may have been done: look before you try again. "
        "Is this its HTTP door, and served as http:// or https:// as named?",
    )


def _tls_failed(url: str, fault: ssl.SSLError) -> TlsFailed:
    if isinstance(fault, ssl.SSLCertVerificationError):
        why = fault.verify_message or "its certificate was not trusted"
        hint = (
            "--ca FILE (or WAYSIDE_CA) names the authority to trust: the ca.pem that `wayside tls init` made; "
            "the certificate has to have the name that the address has"
        )
    else:
        why = (fault.reason or type(fault).__name__).replace("_", " ").lower()
        hint = "is this its HTTPS door? http:// is for the one without TLS; `wayside doctor` looks at certificates"
    return TlsFailed(url, f"TLS with {url} failed: {why}", hint=hint)


def _tls(fault: BaseException) -> ssl.SSLError | None:
    """Find the TLS library's own fault among the causes."""
    return next((cause for cause in _causes(fault) if isinstance(cause, ssl.SSLError)), None)


def _reason(fault: BaseException) -> str:
    """Say what the system said of a connection, in its own words."""
    for cause in _causes(fault):
        if isinstance(cause, OSError) and cause.strerror:
            # What asyncio adds to these words names the address once more.
            return "connection refused" if isinstance(cause, ConnectionRefusedError) else cause.strerror
    return "no connection was made"


def _causes(fault: BaseException) -> Iterator[BaseException]:
    """Yield a fault and what it came of, so far as anybody looks."""
    cause: BaseException | None = fault
    for _ in range(8):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__
