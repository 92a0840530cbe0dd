"""Signatures of deliveries: who knows the secret sent exactly this, under this id, just now.

The form is that of Standard Webhooks, which senders and libraries have: the headers ``webhook-id``,
``webhook-timestamp`` in seconds and ``webhook-signature``, which holds ``v1,`` and the base64 of an HMAC-SHA256 over
id, timestamp and body, joined by dots; several may stand in it, between spaces. A secret is ``whsec_`` and base64.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from typing import Final

__all__ = ["TOLERANCE_S", "is_signed", "new_secret", "sign"]

TOLERANCE_S: Final = 300
"""How far the sender's clock may be from ours; older deliveries are refused however well they are signed."""

_PREFIX: Final = "whsec_"
# A number after a dot could be the time: the same signed bytes would be another delivery, under another id.
_DELIVERY: Final = re.compile(r"(?!.*\.[0-9]+(\.|$))[\x21-\x7e]{1,200}", re.ASCII)
_STAMP: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_MOST: Final = 8


def new_secret() -> str:
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign(secret: str, delivery_id: str, timestamp: int, body: bytes) -> str:
    """The signature a sender puts into its header."""
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    digest = hmac.digest(key, f"{delivery_id}.{timestamp}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(digest).decode()


def is_signed(
    secret: str, body: bytes, now_ms: int, *, delivery_id: str | None, timestamp: str | None, signature: str | None
) -> bool:
    """Whether the delivery is from somebody who knows the secret, and new. Takes the same time whatever is wrong."""
    stamp = int(timestamp) if timestamp is not None and _STAMP.fullmatch(timestamp) else 0
    named = delivery_id if delivery_id is not None and _DELIVERY.fullmatch(delivery_id) else ""
    expected = base64.b64decode(sign(secret, named, stamp, body).removeprefix("v1,"))
    given = [one for one in (signature or "").split(" ", _MOST)[:_MOST] if one.startswith("v1,")]
    # All are looked at, so that how long it takes tells nothing.
    matches = [hmac.compare_digest(_digest(one), expected) for one in given or ["v1,"]]
    fresh = abs(now_ms // 1000 - stamp) <= TOLERANCE_S
    return any(matches) and fresh and bool(named)


def _digest(signature: str) -> bytes:
    try:
        return base64.b64decode(signature.removeprefix("v1,"), validate=True)
    except (binascii.Error, ValueError):
        return b""
