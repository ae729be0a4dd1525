"""The broker's HTTP port: its REST interface within the limits of broker.conf."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import Unavailable
from bkdaemon.http_limits import LimitedServer, ListenerLimits

if TYPE_CHECKING:
    from bkctl.world import Network
    from bkdaemon.broker.config import BrokerConfig

CONNECTIONS_MAX: Final = 10_000
"""Where maxHttpServerConnections is 0, which means unlimited in Java."""
BODY_BYTES_MAX: Final = 1 << 20
"""Where httpMaxRequestSize is not set, which means unlimited in Java."""
FILES_PART: Final = 4
"""Connections take at most this part of the process's file descriptors."""
RESERVED_PART: Final = 8
"""Connections for RESERVED_PATHS beyond the others: this part of their number."""
RESERVED_PATHS: Final = frozenset(
    ("/metrics", "/metrics/", "/status.html", "/admin/v2/brokers/health", "/admin/v2/brokers/ready")
)


def listener_limits(config: BrokerConfig) -> ListenerLimits:
    """Returns the limits of the HTTP port under a configuration."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.http_connections_max or CONNECTIONS_MAX
    most = max(1, min(wanted, files // FILES_PART)) if files != resource.RLIM_INFINITY else wanted
    return ListenerLimits(
        connections_max=most,
        reserved=max(1, most // RESERVED_PART),
        head_bytes_max=config.http_head_bytes_max,
        body_bytes_max=config.http_body_bytes_max if config.http_body_bytes_max > 0 else BODY_BYTES_MAX,
    )


class WebServer:
    """Serves one application."""

    def __init__(self, app: Any, limits: ListenerLimits, network: Network) -> None:
        self.limited = LimitedServer(app, limits, reserved_paths=RESERVED_PATHS)
        self._network = network

    async def start(self, host: str, port: int) -> int:
        """Opens the port and returns it; 0 picks a free one.

        Raises:
            Unavailable: the port is not available.
        """
        try:
            return await self.limited.start(self._network, host, port)
        except OSError as e:
            raise Unavailable(f"cannot listen on {host}:{port}: {e}") from e

    async def stop(self) -> None:
        """Closes the port; requests in progress have http_limits.STOP_S to finish."""
        await self.limited.stop()
