"""`bkctl broker start`: runs a Pulsar broker in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkdaemon.broker.service import BrokerService

COMMAND = Command(
    effect=Effect.FENCES,
    examples=("bkctl broker start -c conf/broker.conf",),
    timeout_s=None,
    asks=False,
)


def run(env: Env) -> None:
    """Run a Pulsar broker with the settings of a broker.conf, until SIGTERM or ^C.

    Works beside Java's brokers in one cluster. If the metadata store does not contain the cluster, it first creates the
    same nodes as Java's initialize-cluster-metadata, and logs it. When it takes over a topic, it fences the ledgers of
    the previous owner. Prints `ready BROKER_ID` on stdout when it is ready; logs on stderr.
    """
    conf = env.server_conf("bkctl broker start -c broker.conf")
    try:
        from bkdaemon.broker.service import run as run_broker
    except ModuleNotFoundError as e:
        raise UsageError(f"the broker needs {e.name}", hint="pip install 'bkctl[broker]'") from None
    from bkdaemon.broker.config import load_config

    from bkctl.cli.logs import configure_daemon
    from bkctl.world import real_world

    configure_daemon(env)
    uri = env.options.metadata_uri or env.setting("metadata-uri")
    config = load_config(conf, **({"bookkeeper_uri": uri} if uri else {}))

    def ready(service: BrokerService) -> None:
        env.stdout.write(f"ready {service.broker_id}\n")
        env.stdout.flush()

    run_broker(config, real_world(), ready)
