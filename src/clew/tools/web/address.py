"""Which addresses may be connected to. By default only those of the public internet.

The tables follow IANA's registries of special-purpose addresses. An address that carries another one inside
(IPv4-mapped, 6to4, NAT64, Teredo, ISATAP) is refused whatever it carries: no public site needs to be reached so.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

__all__ = ["Address", "AddressPolicy", "public_only"]

Address: TypeAlias = IPv4Address | IPv6Address
AddressPolicy: TypeAlias = Callable[[Address], str | None]
"""Why an address is refused, or None."""

_V4: Final = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "means this host"),
        ("10.0.0.0/8", "is private"),
        ("100.64.0.0/10", "is shared by a carrier (CGNAT)"),
        ("127.0.0.0/8", "is loopback"),
        ("169.254.0.0/16", "is link-local, where clouds keep their metadata"),
        ("172.16.0.0/12", "is private"),
        ("192.0.0.0/24", "is reserved for protocols"),
        ("192.0.2.0/24", "is for documentation"),
        ("192.31.196.0/24", "is reserved"),
        ("192.52.193.0/24", "is reserved"),
        ("192.88.99.0/24", "is a 6to4 relay"),
        ("192.168.0.0/16", "is private"),
        ("192.175.48.0/24", "is reserved"),
        ("198.18.0.0/15", "is for benchmarks"),
        ("198.51.100.0/24", "is for documentation"),
        ("203.0.113.0/24", "is for documentation"),
        ("224.0.0.0/4", "is multicast"),
        ("240.0.0.0/4", "is reserved"),
        # In the public range, and answered by the host of a virtual machine only.
        ("168.63.129.16/32", "is a cloud's own service"),
    )
)
_V6: Final = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "means this host"),
        ("::1/128", "is loopback"),
        ("::ffff:0:0/96", "carries an IPv4 address"),
        ("::/96", "carries an IPv4 address"),
        ("64:ff9b::/96", "carries an IPv4 address (NAT64)"),
        ("64:ff9b:1::/48", "carries an IPv4 address (NAT64)"),
        ("2001::/32", "carries an IPv4 address (Teredo)"),
        ("2001::/23", "is reserved for protocols"),
        ("2001:db8::/32", "is for documentation"),
        ("2002::/16", "carries an IPv4 address (6to4)"),
        ("3fff::/20", "is for documentation"),
        ("fc00::/7", "is private"),
        ("fe80::/10", "is link-local"),
        ("fec0::/10", "is private (site-local)"),
        ("ff00::/8", "is multicast"),
    )
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)


def public_only(address: Address) -> str | None:
    """The default policy: why this address is not a public one, or None."""
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in _V4 if address in network), None)
    for network, reason in _V6:
        if address in network:
            return reason
    if address.scope_id is not None:
        return "names a network interface"
    if address not in _GLOBAL_UNICAST:
        return "is not a public address"
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return "carries an IPv4 address (ISATAP)"
    return None
