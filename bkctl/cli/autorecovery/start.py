"""`bkctl autorecovery start`: runs an auditor candidate and a replication worker in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

if TYPE_CHECKING:
    from bkdaemon.autorecovery.server import AutoRecovery

COMMAND = Command(
    effect=Effect.FENCES,
    examples=(
        "bkctl autorecovery start -c conf/bk_server.conf",
        "bkctl autorecovery start -c bk_server.conf -m zk://zk1:2181/ledgers",
    ),
    timeout_s=None,
    asks=False,
)


def run(env: Env) -> None:
    """Run an auditor candidate and a replication worker until SIGTERM or ^C.

    Works beside Java's auditors and workers in one cluster. Reads BookKeeper's own keys: metadataServiceUri,
    lostBookieRecoveryDelay, auditorPeriodicCheckInterval, openLedgerRereplicationGracePeriod, replicationRateByBytes…
    An open ledger whose writer does not replace a lost bookie within openLedgerRereplicationGracePeriod is fenced and
    closed. Prints `ready BOOKIE_ID` on stdout when it is ready; logs on stderr.
    """
    conf = env.server_conf("bkctl autorecovery start -c bk_server.conf")
    from bkdaemon.autorecovery.server import run as run_auto_recovery
    from bkdaemon.bookie.config import load_config

    from bkctl.cli.logs import configure_daemon
    from bkctl.world import real_world

    configure_daemon(env)
    uri = env.options.metadata_uri or env.setting("metadata-uri")
    config = load_config(conf, **({"metadata_service_uri": uri} if uri else {}))

    def ready(recovery: AutoRecovery) -> None:
        env.stdout.write(f"ready {recovery.bookie_id}\n")
        env.stdout.flush()

    run_auto_recovery(config, real_world(), ready)
