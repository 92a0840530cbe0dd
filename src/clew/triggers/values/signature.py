"""Signatures of webhook deliveries, which prove that the owner of the secret sent this body, and recently.

Every scheme is an HMAC-SHA256 over bytes that include the body. ``standard`` is Standard Webhooks, which many senders
and libraries support. It has the headers ``webhook-id``, ``webhook-timestamp`` in seconds and ``webhook-signature``:
``v1,`` and the base64 of the HMAC over id, timestamp and body, joined by dots. There may be several signatures,
separated by spaces. A secret is ``whsec_`` and base64. The other schemes belong to one sender each; the secret is used
as it is, and the digest is hexadecimal:

- ``github``: ``X-Hub-Signature-256: sha256=…`` over the body alone. No timestamp is signed, nor is the id.
- ``stripe``: ``Stripe-Signature: t=…,v1=…`` over timestamp, a dot and the body; several ``v1`` while the secret
  is rotated.
- ``slack``: ``X-Slack-Signature: v0=…`` over ``v0:``, ``X-Slack-Request-Timestamp``, ``:`` and the body.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from clew.errors import InvalidInput

__all__ = [
    "SCHEMES",
    "TOLERANCE_S",
    "Scheme",
    "check_secret",
    "is_signed",
    "new_secret",
    "replay_digest",
    "sign",
    "signed_bytes",
    "signs_id",
]

Scheme = Literal["standard", "github", "stripe", "slack"]

SCHEMES: Final[tuple[Scheme, ...]] = ("standard", "github", "stripe", "slack")

TOLERANCE_S: Final = 300
"""The maximum difference between the sender's clock and ours; older deliveries are refused even if signed."""

_PREFIX: Final = "whsec_"
# No number after a dot: it could be read as the timestamp, and the same signed bytes as a delivery with another id.
_DELIVERY_ID: Final = re.compile(r"(?!.*\.[0-9]+(\.|$))[\x21-\x7e]{1,200}", re.ASCII)
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SECRET: Final = re.compile(r"[\x21-\x7e]{16,200}", re.ASCII)
_MAX_SIGNATURES: Final = 8


class _Claim(NamedTuple):
    """The parsed signature headers of a delivery: the signed bytes, the digests to compare, the timestamp (None for a
    scheme that signs none), and whether they are well-formed."""

    signed: bytes
    digests: Sequence[bytes]
    timestamp: int | None
    well_formed: bool = True


def new_secret() -> str:
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(scheme: Scheme, secret: str | None) -> str:
    """Return the secret of a webhook: the given one if it is valid, or a new one if the sender accepts ours."""
    if secret is None:
        if scheme in ("stripe", "slack"):
            why = f"{scheme} creates the secret; pass the signing secret that it shows you (--secret-file FILE)"
            raise InvalidInput(why)
        return new_secret()
    if not _SECRET.fullmatch(secret):
        raise InvalidInput("a secret must be 16 to 200 printable ASCII characters without spaces")
    if scheme == "standard" and not (secret.startswith(_PREFIX) and len(_from_base64(secret[len(_PREFIX) :])) >= 16):
        raise InvalidInput("the secret of a standard webhook must be whsec_ and then the base64 of at least 16 bytes")
    return secret


def sign(secret: str, delivery_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature that a sender of Standard Webhooks puts into its header."""
    digest = hmac.digest(_key("standard", secret), f"{delivery_id}.{timestamp}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(digest).decode()


def is_signed(scheme: Scheme, secret: str, body: bytes, headers: Mapping[str, str], now_ms: int) -> bool:
    """Return whether a delivery is signed with the secret, and recent; header names must be lowercase.

    Takes the same time whatever the reason for a refusal.
    """
    claim = _CLAIMS[scheme](body, headers)
    expected = hmac.digest(_key(scheme, secret), claim.signed, "sha256")
    # Compare all of them, so that the duration reveals nothing.
    matches = [hmac.compare_digest(one, expected) for one in claim.digests or [b""]]
    fresh = claim.timestamp is None or abs(now_ms // 1000 - claim.timestamp) <= TOLERANCE_S
    return any(matches) and fresh and claim.well_formed


def signs_id(scheme: Scheme) -> bool:
    """Return whether the signature covers the id of a delivery."""
    return scheme != "github"


def replay_digest(secret: str, body: bytes) -> str:
    """Return a digest that identifies a body signed with this secret, to detect repeated deliveries. It does not reveal
    the signature."""
    return sha256(hmac.digest(secret.encode(), body, "sha256")).hexdigest()


def signed_bytes(scheme: Scheme, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes that a delivery's signature covers: two deliveries with the same bytes are one."""
    return _CLAIMS[scheme](body, headers).signed


def _key(scheme: Scheme, secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(_PREFIX)) if scheme == "standard" else secret.encode()


def _standard(body: bytes, headers: Mapping[str, str]) -> _Claim:
    delivery_id = headers.get("webhook-id", "")
    has_id = _DELIVERY_ID.fullmatch(delivery_id) is not None
    timestamp = _parse_timestamp(headers.get("webhook-timestamp", ""))
    given = headers.get("webhook-signature", "").split(" ", _MAX_SIGNATURES)[:_MAX_SIGNATURES]
    signed = f"{delivery_id if has_id else ''}.{timestamp}.".encode() + body
    return _Claim(signed, [_from_base64(one[3:]) for one in given if one.startswith("v1,")], timestamp, has_id)


def _github(body: bytes, headers: Mapping[str, str]) -> _Claim:
    method, _, digest = headers.get("x-hub-signature-256", "").partition("=")
    has_id = _DELIVERY_ID.fullmatch(headers.get("x-github-delivery", "")) is not None
    return _Claim(body, [_from_hex(digest)], None, has_id and method == "sha256")


def _stripe(body: bytes, headers: Mapping[str, str]) -> _Claim:
    pairs = [
        item.partition("=")
        for item in headers.get("stripe-signature", "").split(",", 2 * _MAX_SIGNATURES)[: 2 * _MAX_SIGNATURES]
    ]
    timestamps = [value for name, _, value in pairs if name == "t"]
    timestamp = _parse_timestamp(timestamps[0] if len(timestamps) == 1 else "")
    digests = [_from_hex(value) for name, _, value in pairs if name == "v1"][:_MAX_SIGNATURES]
    return _Claim(f"{timestamp}.".encode() + body, digests, timestamp)


def _slack(body: bytes, headers: Mapping[str, str]) -> _Claim:
    version, _, digest = headers.get("x-slack-signature", "").partition("=")
    timestamp = _parse_timestamp(headers.get("x-slack-request-timestamp", ""))
    return _Claim(f"v0:{timestamp}:".encode() + body, [_from_hex(digest)], timestamp, version == "v0")


_CLAIMS: Final = {"standard": _standard, "github": _github, "stripe": _stripe, "slack": _slack}


def _parse_timestamp(text: str) -> int:
    # A leading zero would be part of the signed text but lost in the number, so it is invalid.
    return int(text) if _TIMESTAMP.fullmatch(text) and str(int(text)) == text else 0


def _from_hex(text: str) -> bytes:
    return bytes.fromhex(text) if _HEX.fullmatch(text) else b""


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
