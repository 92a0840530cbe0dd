"""The policy for addresses to connect to. By default only those of the public internet are allowed.

The table next to this module follows IANA's registries of special-purpose addresses. An address that contains another
one (IPv4-mapped, 6to4, NAT64, Teredo, ISATAP) is always refused: no public site needs it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, TypeAlias

__all__ = ["Address", "AddressPolicy", "public_only"]

Address: TypeAlias = IPv4Address | IPv6Address
AddressPolicy: TypeAlias = Callable[[Address], str | None]
"""Returns the reason why an address is refused, or None."""

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)


# An invalid table raises, and nothing is fetched.
@cache
def _special_networks() -> list[tuple[IPv4Network | IPv6Network, str]]:
    table = tomllib.loads(files(__package__).joinpath("addresses.toml").read_text("utf-8"))
    return [(ip_network(network), reason) for network, reason in table.items()]


def public_only(address: Address) -> str | None:
    """Return why this address is not a public one, or None. The default policy."""
    reason = next((reason for network, reason in _special_networks() if address in network), None)
    if reason is not None or isinstance(address, IPv4Address):
        return reason
    if address.scope_id is not None:
        return "names a network interface"
    if address not in _GLOBAL_UNICAST:
        return "is not a public address"
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return "carries an IPv4 address (ISATAP)"
    return None
