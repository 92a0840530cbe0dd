"""Webhooks: kept, changed, and what is delivered to them taken in.

A delivery is believed for its signature alone. Who has no secret cannot tell a webhook that is there from one that is
not, and the same delivery again changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from clew.dispatch.router import MAX_CONTENT, Inbound, Received, Router
from clew.dispatch.schedules import check_prompt
from clew.errors import ClewError, Conflict, InvalidInput, SignatureInvalid, TriggerNotFound, TriggerPaused
from clew.runtime.host import Host
from clew.store.unit import STORE_WIDE, DropWebhook, PutWebhook, Unit, Write
from clew.transcript.gate import check_value
from clew.transcript.part import text_part
from clew.triggers.envelope import Trigger, safe_headers
from clew.triggers.ledger import check_type, event_text
from clew.triggers.routing import Routing, check_routing
from clew.triggers.signature import is_signed, new_secret
from clew.triggers.webhook import Webhook, check_name, payload_of

__all__ = ["MAX_DELIVERY", "MAX_WEBHOOKS", "Webhooks"]

MAX_DELIVERY: Final = 1024 * 1024
MAX_WEBHOOKS: Final = 1_000


class Webhooks:
    """``engine.webhooks``."""

    def __init__(self, host: Host, router: Router) -> None:
        self._host = host
        self._router = router
        self._nobodys = new_secret()
        # Changing reads a webhook and writes it back: one at a time.
        self._lock = asyncio.Lock()

    async def add(
        self, name: str, *, prompt: str | None = None, paused: bool = False, routing: Routing | None = None
    ) -> Webhook:
        """Keep a webhook under a new secret, which is in the answer and is never shown again.

        The message of a delivery is the ``prompt``, and what was sent after it. Without a routing each delivery has a
        session of its own.
        """
        routing = check_routing(routing or Routing())
        check_value([name, prompt, msgspec.to_builtins(routing)], "webhook")
        check_name(name)
        if prompt is not None:
            check_prompt(prompt)
        routing = await self._router.check(routing)
        async with self._lock:
            known = await self.list()
            if any(webhook.name == name for webhook in known):
                raise Conflict(f"there is a webhook {name} already", webhook=name)
            if len(known) >= MAX_WEBHOOKS:
                raise InvalidInput(f"there are {MAX_WEBHOOKS} webhooks already; remove some first")
            now = self._host.clock.now_ms()
            webhook = Webhook(
                name=name, secret=new_secret(), created_at=now, prompt=prompt, paused=paused, routing=routing
            )
            await self._commit(PutWebhook(webhook))
            return webhook

    async def list(self) -> tuple[Webhook, ...]:
        return await self._host.store.list_webhooks()

    async def get(self, name: str) -> Webhook:
        found = next((one for one in await self.list() if one.name == name), None)
        if found is None:
            raise TriggerNotFound(f"there is no webhook {name[:80]}", webhook=name[:80])
        return found

    async def change(self, name: str, *, paused: bool | None = None, prompt: str | None = None) -> Webhook:
        """Change what is given; an empty prompt takes it away."""
        if paused is None and prompt is None:
            return await self.get(name)
        check_value([prompt], "webhook")
        if prompt:
            check_prompt(prompt)
        changes: dict[str, Any] = {} if paused is None else {"paused": paused}
        if prompt is not None:
            changes["prompt"] = prompt or None
        return await self._replace(name, **changes)

    async def rotate(self, name: str) -> Webhook:
        """A new secret, shown once; the old one counts no more."""
        return await self._replace(name, secret=new_secret())

    async def remove(self, name: str) -> None:
        """Take it out. What came in stays."""
        async with self._lock:
            await self.get(name)
            await self._commit(DropWebhook(name))

    async def _replace(self, name: str, **changes: Any) -> Webhook:
        async with self._lock:
            webhook = msgspec.structs.replace(await self.get(name), **changes)
            try:
                await self._commit(PutWebhook(webhook))
            except ClewError:
                # It may have gone with its session since it was read.
                await self.get(name)
                raise
            return webhook

    async def deliver(self, name: str, body: bytes, headers: Iterable[tuple[str, str]]) -> Received:
        """Take a delivery in: signed, new, and not too large, or refused."""
        given: dict[str, str] = {}
        for key, value in headers:
            given.setdefault(key.lower(), value)
        webhook = next((one for one in await self.list() if one.name == name), None)
        delivery_id = given.get("webhook-id")
        signed = is_signed(
            webhook.secret if webhook is not None else self._nobodys,
            body,
            self._host.clock.now_ms(),
            delivery_id=delivery_id,
            timestamp=given.get("webhook-timestamp"),
            signature=given.get("webhook-signature"),
        )
        if webhook is None or delivery_id is None or not signed:
            raise SignatureInvalid("this delivery is not signed for this webhook, or not within five minutes")
        if webhook.paused:
            raise TriggerPaused(f"the webhook {name} is paused", webhook=name)
        if len(body) > MAX_DELIVERY:
            raise InvalidInput(f"a delivery has at most {MAX_DELIVERY} bytes")
        return await self._take(webhook, delivery_id, payload_of(body), given)

    async def _take(self, webhook: Webhook, delivery_id: str, payload: Any, headers: dict[str, str]) -> Received:
        if payload in ("", None):
            raise InvalidInput("the delivery is empty")
        check_value(payload, "the delivery", max_bytes=MAX_CONTENT)
        said = webhook.prompt or f"A delivery came in at the webhook {webhook.name}."
        trigger = Trigger(
            source="webhook",
            fired_at=self._host.clock.now_ms(),
            delivery_id=delivery_id,
            headers=safe_headers(headers.items()) or None,
            auth_subject=webhook.source,
        )
        inbound = Inbound(
            source=webhook.source,
            source_id=delivery_id,
            trigger=trigger,
            content={"payload": payload},
            parts=(text_part(said), text_part(event_text(payload))),
            routing=webhook.routing,
            type=_type_of(payload),
            tags={"source": "webhook", "webhook": webhook.name},
        )
        return (await self._router.receive(inbound))[0]

    async def _commit(self, write: Write) -> None:
        await self._host.store.commit(Unit(STORE_WIDE, (write,), sync="power"))


def _type_of(payload: Any) -> str | None:
    """What a delivery says it is, where it says so."""
    named = payload.get("type") if isinstance(payload, dict) else None
    try:
        return check_type(named) if isinstance(named, str) else None
    except InvalidInput:
        return None
