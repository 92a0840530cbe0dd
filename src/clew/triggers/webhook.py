"""Webhooks: doors for other programs, each with a name, a secret of its own, and the scheme its sender signs by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from clew.errors import InvalidInput
from clew.triggers.ledger import check_source_id, check_type, tag_of
from clew.triggers.routing import Routing
from clew.triggers.signature import Scheme, signed_bytes

__all__ = ["Webhook", "check_name", "delivery_id_of", "key_of", "payload_of", "type_of"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_FORM: Final = "application/x-www-form-urlencoded"


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Who knows ``secret`` may start a turn with what they send, after ``prompt``. ``scheme`` is how it is signed."""

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
        """What it is kept under, and delivered to: the name is the owner's own, and another may have the same."""
        return key_of(self.owner, self.name)

    @property
    def source(self) -> str:
        """What its events have as their source."""
        return f"hook:{self.key}"

    def __repr__(self) -> str:
        # A value in a log or a traceback must not give the secret away.
        return f"Webhook(name={self.name!r})"


def key_of(owner: str | None, name: str) -> str:
    return name if owner is None else f"{tag_of(owner)}.{name}"


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput("a webhook's name is 1 to 64 small letters, digits, dashes and underscores")
    return name


def payload_of(body: bytes, content_type: str = "") -> Any:
    """What was sent: a JSON value, the fields of a form, else text. A form's field ``payload`` alone is JSON in it.

    No scheme signs the content type: what is JSON is JSON, whatever the header says.
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
        # Whole numbers stay whole, however long: one that cannot be kept is refused, not rounded.
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text


def delivery_id_of(scheme: Scheme, body: bytes, headers: Mapping[str, str]) -> str:
    """What the sender calls a delivery that is signed: the same when it is sent again, under whatever other headers.

    Where a body names itself the id is signed with it; where nothing does, the delivery is named by what was signed.
    """
    if scheme == "standard":
        return headers["webhook-id"]
    if scheme == "github":
        return headers["x-github-delivery"]
    payload = payload_of(body)
    named = payload.get("id" if scheme == "stripe" else "event_id") if isinstance(payload, dict) else None
    try:
        return check_source_id(named if isinstance(named, str) else "")
    except InvalidInput:
        return f"sha256-{sha256(signed_bytes(scheme, body, headers)).hexdigest()}"


def type_of(scheme: Scheme, payload: Any, headers: Mapping[str, str]) -> str | None:
    """What a delivery says it is, where it says so."""
    named = payload.get("type") if isinstance(payload, dict) else None
    if scheme == "github":
        named = headers.get("x-github-event")
    elif scheme == "slack" and isinstance(payload, dict) and isinstance(payload.get("event"), dict):
        # The envelope of every event is of type event_callback.
        named = payload["event"].get("type")
    try:
        return check_type(named) if isinstance(named, str) else None
    except InvalidInput:
        return None
