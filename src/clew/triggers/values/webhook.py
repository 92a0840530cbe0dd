"""Webhooks: entry points for other programs, each with a name, its own secret, and the signature scheme of its
sender."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from clew.errors import InvalidInput
from clew.triggers.values.ledger import check_source_id, check_type, tag_of
from clew.triggers.values.routing import Routing
from clew.triggers.values.signature import Scheme, signed_bytes

__all__ = ["Webhook", "check_name", "delivery_id_of", "key_of", "payload_of", "type_of"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_FORM: Final = "application/x-www-form-urlencoded"


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An entry point whose signed deliveries start turns: ``prompt`` and payload. ``scheme`` is how they are signed."""

    name: str
    secret: str
    created_at: int
    scheme: Scheme = "standard"
    prompt: str | None = None
    paused: bool = False
    routing: Routing = Routing()
    owner: str | None = None

    @property
    def key(self) -> str:
        """The key for storage and delivery: names are unique per owner only."""
        return key_of(self.owner, self.name)

    @property
    def source(self) -> str:
        """The source of its events."""
        return f"hook:{self.key}"

    def __repr__(self) -> str:
        # A value in a log or a traceback must not reveal the secret.
        return f"Webhook(name={self.name!r})"


def key_of(owner: str | None, name: str) -> str:
    return name if owner is None else f"{tag_of(owner)}.{name}"


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput("a webhook's name is 1 to 64 lowercase letters, digits, dashes and underscores")
    return name


def payload_of(body: bytes, content_type: str = "") -> Any:
    """Return the payload: a JSON value, the fields of a form, or text. A form with only ``payload`` contains JSON.

    No scheme signs the content type, so JSON counts as JSON whatever the header says.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("a delivery is JSON or text in UTF-8") from error
    sent = _from_json(text)
    if sent is text and content_type.partition(";")[0].strip().lower() == _FORM:
        try:
            fields = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=1_000))
        except ValueError:
            fields = {}
        if fields.keys() == {"payload"}:
            return _from_json(fields["payload"])
        return fields or text
    return sent


def _from_json(text: str) -> Any:
    try:
        # Integers keep all digits; those that cannot be stored are refused, not rounded.
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text


def delivery_id_of(scheme: Scheme, body: bytes, headers: Mapping[str, str]) -> str:
    """Return the sender's id of a signed delivery, which is the same when it is sent again, with whatever other
    headers.

    Where the body contains an id, that is signed with it; otherwise the signed bytes identify the delivery.
    """
    if scheme == "standard":
        return headers["webhook-id"]
    if scheme == "github":
        return headers["x-github-delivery"]
    payload = payload_of(body)
    sender_id = payload.get("id" if scheme == "stripe" else "event_id") if isinstance(payload, dict) else None
    try:
        return check_source_id(sender_id if isinstance(sender_id, str) else "")
    except InvalidInput:
        return f"sha256-{sha256(signed_bytes(scheme, body, headers)).hexdigest()}"


def type_of(scheme: Scheme, payload: Any, headers: Mapping[str, str]) -> str | None:
    """Return the event type of a delivery, if it has one."""
    sender_id = payload.get("type") if isinstance(payload, dict) else None
    if scheme == "github":
        sender_id = headers.get("x-github-event")
    elif scheme == "slack" and isinstance(payload, dict) and isinstance(payload.get("event"), dict):
        # The envelope of every event has the type event_callback.
        sender_id = payload["event"].get("type")
    try:
        return check_type(sender_id) if isinstance(sender_id, str) else None
    except InvalidInput:
        return None
