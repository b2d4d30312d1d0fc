"""What a connection or a session leaves behind when it ends, pure: the will, the time that the session is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.listener.codec.packets import Will
from gateway.listener.port import Admitted, Application
from gateway.listener.presences import Presences, presence_topic
from gateway.listener.session import Session
from gateway.listener.sessions import Sessions


def is_presence(device: str, topic: str) -> bool:
    """Say whether a will on `topic` is published: on the device's own `status`, in either form."""
    return topic in {"status", presence_topic(device)}


@dataclass(frozen=True, slots=True)
class Endings:
    """Publishes wills (3.1.2.5) and lets sessions expire (3.1.2.11.2). `schedule` has `lapse` called."""

    application: Application
    sessions: Sessions
    presences: Presences
    schedule: Callable[[Session, float], None]
    cancel: Callable[[Session], None]

    def part(self, session: Session, will: Will | None, now: float) -> None:
        """Take the connection away from `session`; `will` is None where none is to be published."""
        session.detach()
        if session.expiry_seconds == 0:
            self.sessions.drop(session)
            if will is not None:
                self.publish(session.who, session.client_id, will, now)
            return
        session.ends_at = now + session.expiry_seconds
        at = session.ends_at
        if will is not None:
            delay = will.properties.will_delay or 0
            if delay == 0:
                self.publish(session.who, session.client_id, will, now)
            else:
                session.will, session.will_at = will, now + min(delay, session.expiry_seconds)
                at = session.will_at
        self.schedule(session, at)

    def resume(self, session: Session) -> None:
        """Take back a will that waits: the client has returned in time (3.1.3.2.2)."""
        session.will = session.will_at = None
        self.cancel(session)

    def end(self, session: Session, now: float) -> None:
        """Publish what waits of a session that has ended (3.1.3.2.2)."""
        will, session.will, session.will_at = session.will, None, None
        if will is not None:
            self.publish(session.who, session.client_id, will, now)

    def lapse(self, session: Session, now: float) -> float | None:
        """Do what is due for a session that is away; return when to look again, or None for never."""
        if session.link is not None or session.ends_at is None or not self.sessions.holds(session):
            return None
        if session.ends_at <= now:
            self.sessions.drop(session)
            self.end(session, now)
            return None
        if session.will_at is not None:
            if session.will_at > now:
                return session.will_at
            self.end(session, now)
        return session.ends_at

    def publish(self, who: Admitted, client_id: str, will: Will, now: float) -> None:
        """Send a will on `status` to those who subscribe to `d/<device>/status`, then tell the application."""
        expiry = will.properties.message_expiry
        expires_at = None if expiry is None else now + expiry
        self.tell(who, client_id, will.payload, will.qos, now, retain=will.retain, expires_at=expires_at)
        self.application.presence(who, will.payload)

    def tell(
        self,
        who: Admitted,
        client_id: str,
        payload: bytes,
        qos: int,
        now: float,
        *,
        retain: bool,
        expires_at: float | None = None,
    ) -> None:
        """Send what a device says of itself to those who subscribe to `d/<device>/status`, and keep it if asked."""
        if retain:
            self.presences.take(who.device, payload, expires_at)
        for _ in self.sessions.deliver(
            presence_topic(who.device),
            payload,
            qos=min(qos, 1),
            now=now,
            expires_at=expires_at,
            publisher=(who.device, client_id),
            retain=retain,
        ):
            pass
