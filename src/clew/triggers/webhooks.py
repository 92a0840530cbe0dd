"""Webhooks: created, changed, and the receiver of their deliveries.

A delivery is trusted only for its signature. Without the secret, an existing webhook cannot be told from a missing one,
and a repeated delivery changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from clew.errors import ClewError, Conflict, InvalidInput, SignatureInvalid, TriggerNotFound, TriggerPaused
from clew.session.host import Host
from clew.store.unit import STORE_WIDE, DropWebhook, PutWebhook, Unit, Write
from clew.transcript.part import text_part
from clew.transcript.value_check import check_value
from clew.triggers.router import MAX_CONTENT, Inbound, Received, Router, Scope, Trigger, safe_headers
from clew.triggers.schedules import check_prompt
from clew.triggers.values.ledger import event_text
from clew.triggers.values.routing import Routing, check_routing
from clew.triggers.values.signature import SCHEMES, Scheme, check_secret, is_signed, new_secret, replay_digest, signs_id
from clew.triggers.values.webhook import Webhook, check_name, delivery_id_of, key_of, payload_of, type_of

__all__ = ["MAX_DELIVERY", "MAX_WEBHOOKS", "Challenge", "Webhooks"]

MAX_DELIVERY: Final = 1024 * 1024
MAX_WEBHOOKS: Final = 1_000


class Challenge(msgspec.Struct, frozen=True):
    """The answer to Slack's verification of a webhook's URL. It starts no turn."""

    challenge: str


class Webhooks:
    """``engine.webhooks``."""

    def __init__(self, host: Host, router: Router, scope: Scope, lock: asyncio.Lock) -> None:
        self._host = host
        self._router = router
        self._dummy_secret = new_secret()
        self._owner = scope.owner
        # Changing reads a webhook and writes it back: one at a time.
        self._lock = lock

    async def add(
        self,
        name: str,
        *,
        scheme: Scheme = "standard",
        secret: str | None = None,
        prompt: str | None = None,
        paused: bool = False,
        routing: Routing | None = None,
    ) -> Webhook:
        """Store a webhook with a new secret, which is in the answer and is never shown again.

        ``scheme`` is how its sender signs. ``secret`` is one made by the sender, as Stripe and Slack do. The message of
        a delivery is the ``prompt`` followed by the payload. Without a routing each delivery has its own session.
        """
        routing = check_routing(routing or Routing())
        check_value([name, prompt, msgspec.to_builtins(routing)], "webhook")
        check_name(name)
        if scheme not in SCHEMES:
            raise InvalidInput(f"scheme is one of {', '.join(SCHEMES)}, not {scheme!r}")
        secret = check_secret(scheme, secret)
        if prompt is not None:
            check_prompt(prompt)
        routing, owner = await self._router.check(routing)
        async with self._lock:
            known = await self.list()
            if any((webhook.name, webhook.owner) == (name, owner) for webhook in known):
                why = f"a webhook named {name} already exists; use another name, or run `clew hook rm {name}` first"
                raise Conflict(why, webhook=name)
            if len(known) >= MAX_WEBHOOKS:
                raise InvalidInput(f"the limit of {MAX_WEBHOOKS} webhooks is reached; remove some first")
            now = self._host.clock.now_ms()
            webhook = Webhook(
                name=name,
                secret=secret,
                created_at=now,
                scheme=scheme,
                prompt=prompt,
                paused=paused,
                routing=routing,
                owner=owner,
            )
            await self._commit(PutWebhook(webhook))
            return webhook

    async def list(self) -> tuple[Webhook, ...]:
        """Return all webhooks, by name."""
        stored = await self._host.store.list_webhooks()
        return tuple(hook for hook in stored if self._owner in (None, hook.owner))

    async def get(self, name: str) -> Webhook:
        """Return the webhook with this name, or with this key, which is unique across owners."""
        named = (name, key_of(self._owner, name))
        found = next((hook for hook in await self.list() if hook.key in named), None)
        if found is None:
            name = name[:80]
            raise TriggerNotFound(f"there is no webhook {name}; `clew hook ls` lists those there are", webhook=name)
        return found

    async def change(self, name: str, *, paused: bool | None = None, prompt: str | None = None) -> Webhook:
        """Change the given values; an empty prompt removes it."""
        if paused is None and prompt is None:
            return await self.get(name)
        check_value([prompt], "webhook")
        if prompt:
            check_prompt(prompt)
        changes: dict[str, Any] = {} if paused is None else {"paused": paused}
        if prompt is not None:
            changes["prompt"] = prompt or None
        return await self._replace(name, lambda _: changes)

    async def rotate(self, name: str, *, secret: str | None = None) -> Webhook:
        """Replace the secret by a new one, shown once, or by the sender's new one; the old one becomes invalid."""
        return await self._replace(name, lambda webhook: {"secret": check_secret(webhook.scheme, secret)})

    async def remove(self, name: str) -> None:
        """Remove a webhook. Received deliveries stay."""
        async with self._lock:
            await self._commit(DropWebhook((await self.get(name)).key))

    async def _replace(self, name: str, changes: Callable[[Webhook], dict[str, Any]]) -> Webhook:
        async with self._lock:
            webhook = await self.get(name)
            webhook = msgspec.structs.replace(webhook, **changes(webhook))
            try:
                await self._commit(PutWebhook(webhook))
            except ClewError:
                # It may have been deleted with its session since it was read.
                await self.get(name)
                raise
            return webhook

    async def deliver(self, name: str, body: bytes, headers: Iterable[tuple[str, str]]) -> Received | Challenge:
        """Accept a delivery that is signed, new, and not too large, or refuse it.

        The body is JSON, a form or text of at most 1 MiB. ``SignatureInvalid``: not signed with the secret, over five
        minutes off, without an id, or for an unknown name. A repeated delivery gets the same answer. Headers that may
        contain a secret are not stored. Returns a ``Challenge`` for Slack's first request.
        """
        lowercase: dict[str, str] = {}
        for key, value in headers:
            lowercase.setdefault(key.lower(), value)
        webhook = next((hook for hook in await self.list() if hook.key == name), None)
        scheme, secret = (webhook.scheme, webhook.secret) if webhook is not None else ("standard", self._dummy_secret)
        signed = is_signed(scheme, secret, body, lowercase, self._host.clock.now_ms())
        if webhook is None or not signed:
            raise SignatureInvalid("this delivery is not signed for this webhook, or not within five minutes")
        if len(body) > MAX_DELIVERY:
            raise InvalidInput(f"a delivery has at most {MAX_DELIVERY} bytes")
        payload = payload_of(body, lowercase.get("content-type", ""))
        if scheme == "slack" and isinstance(payload, dict) and payload.get("type") == "url_verification":
            return Challenge(str(payload.get("challenge", "")))
        if webhook.paused:
            raise TriggerPaused(f"the webhook {name} is paused", webhook=name)
        return await self._accept(webhook, body, payload, lowercase)

    async def _accept(self, webhook: Webhook, body: bytes, payload: Any, headers: dict[str, str]) -> Received:
        delivery_id = delivery_id_of(webhook.scheme, body, headers)
        has_signed_id = signs_id(webhook.scheme)
        if payload in ("", None):
            raise InvalidInput("the delivery is empty")
        check_value(payload, "the delivery", max_bytes=MAX_CONTENT)
        message = webhook.prompt or f"A delivery came in at the webhook {webhook.name}."
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
            parts=(text_part(message), text_part(event_text(payload))),
            routing=webhook.routing,
            type=type_of(webhook.scheme, payload, headers),
            tags={"source": "webhook", "webhook": webhook.name},
            owner=webhook.owner,
            digest=None if has_signed_id else replay_digest(webhook.secret, body),
            distinct_ms=0 if has_signed_id else round(self._host.config.duplicate_delivery_s * 1000),
        )
        return (await self._router.receive(inbound))[0]

    async def _commit(self, write: Write) -> None:
        await self._host.store.commit(Unit(STORE_WIDE, (write,), sync="power"))
