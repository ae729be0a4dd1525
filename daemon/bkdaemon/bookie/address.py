"""The addresses of a bookie: its id, the host that it advertises, the hosts that its ports listen on."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

from bkctl.errors import UsageError
from bkctl.model.bookie import is_loopback
from bkctl.model.ids import BookieId, parse_bookie_id

if TYPE_CHECKING:
    from bkdaemon.bookie.config import BookieConfig

ANY_HOST: Final = "0.0.0.0"
ANY_HOSTS: Final = (ANY_HOST, "::", "[::]")
SIOCGIFADDR: Final = 0x8915  # Linux: the address of an interface


def advertised_host(config: BookieConfig) -> str:
    """Returns the advertised host: advertisedAddress, the interface's, or this machine's; Java's getBookieAddress.

    Raises:
        UsageError: useHostNameAsBookieID is set, and the interface's address has no host name.
        UsageError: it is a loopback address, and neither advertisedAddress nor allowLoopback is set.
    """
    if config.advertised_address:
        return config.advertised_address
    interface = interface_address(config.listening_interface) if config.listening_interface else ""
    if config.use_host_name:
        host = socket.getfqdn(interface) if interface else socket.getfqdn()
        if host == interface:
            raise UsageError(f"useHostNameAsBookieID: no host name is known of {interface}")
        host = host.split(".", 1)[0] if config.use_short_host_name else host
    else:
        host = interface or socket.gethostbyname(socket.gethostname())
    if not config.allow_loopback and is_loopback(host):
        raise UsageError(f"this bookie's address is {host}", hint="set advertisedAddress, or allowLoopback=true")
    return host


def listening_host(config: BookieConfig) -> str:
    """Returns the host to listen on: listeningInterface, the advertised loopback address, else every interface."""
    if config.listening_interface:
        return interface_address(config.listening_interface)
    host = advertised_host(config)
    return host if is_loopback(host) else ANY_HOST


def http_host(config: BookieConfig) -> str:
    """Returns the host of the HTTP port: httpServerHost, else the advertised loopback address, else 0.0.0.0."""
    if config.http_host:
        return config.http_host
    try:
        host = advertised_host(config)
    except UsageError:  # auto recovery with a bookieId needs no address
        return ANY_HOST
    return host if is_loopback(host) else ANY_HOST


def bookie_id_of(config: BookieConfig) -> BookieId:
    """Returns the bookie id: bookieId, else host:port."""
    if config.bookie_id is not None:
        return config.bookie_id
    if config.bookie_port == 0:
        raise UsageError("bookiePort=0 needs a bookieId: the port is part of the id otherwise")
    return parse_bookie_id(f"{advertised_host(config)}:{config.bookie_port}")


def interface_address(name: str) -> str:
    """Returns the IPv4 address of a network interface (Linux).

    Raises:
        UsageError: the interface does not exist, or has no address.
    """
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            answer = fcntl.ioctl(s.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
        except OSError as e:
            raise UsageError(f"listeningInterface {name}: {e}") from e
    return socket.inet_ntoa(answer[20:24])
