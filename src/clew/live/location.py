"""The address of the live layer, as it is configured. Nothing is opened here."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from clew.errors import InvalidInput

__all__ = ["LivePlace", "parse_live", "shown_address"]

_EXPECTED: Final = "local, postgres, or the address of a Valkey or Redis server: redis://HOST:6379/0"
_SERVERS: Final = ("redis", "rediss", "unix", "valkey", "valkeys")


class LivePlace(msgspec.Struct, frozen=True):
    """``local``: this process only. ``postgres``: the store's own database. ``redis``: the server at ``url``."""

    kind: Literal["local", "postgres", "redis"]
    url: str = ""


def parse_live(named: str | None) -> LivePlace | None:
    """Return the configured live layer; None if none is configured."""
    if not named:
        return None
    if named in ("local", "postgres"):
        return LivePlace("local" if named == "local" else "postgres")
    scheme, colon, rest = named.partition("://")
    if not colon or scheme not in _SERVERS or not rest or any(ord(sign) <= 32 for sign in named):
        # The text may still contain a password: do not repeat it.
        raise InvalidInput(f"the live layer is {_EXPECTED}")
    return LivePlace("redis", f"{scheme.replace('valkey', 'redis')}://{rest}")


def shown_address(url: str) -> str:
    """Return the address without credentials; if they cannot be located reliably, only its scheme."""
    scheme, _, rest = url.partition("://")
    address = rest.split("?", 1)[0]
    is_plain = "@" not in address.partition("/")[2] and address.count("@") <= 1
    return f"{scheme}://{address.rpartition('@')[2]}" if is_plain else f"{scheme}://…"
