"""`bkctl bookie start`: runs a bookie in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

if TYPE_CHECKING:
    from bkdaemon.bookie.service import BookieService

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl bookie start -c conf/bk_server.conf",
        "bkctl bookie start -c bk_server.conf -m zk://zk1:2181/ledgers",
    ),
    timeout_s=None,
    asks=False,
)


def run(env: Env) -> None:
    """Run a bookie with the settings of a bk_server.conf, until SIGTERM or ^C.

    Prints `ready BOOKIE_ID` on stdout when it is ready; logs on stderr. -m overrides the file's metadataServiceUri.
    """
    conf = env.server_conf("bkctl bookie start -c bk_server.conf")
    from bkdaemon.bookie.config import load_config
    from bkdaemon.bookie.service import run as run_bookie

    from bkctl.cli.logs import configure_daemon
    from bkctl.world import real_world

    configure_daemon(env)
    uri = env.options.metadata_uri or env.setting("metadata-uri")
    config = load_config(conf, **({"metadata_service_uri": uri} if uri else {}))

    def ready(service: BookieService) -> None:
        env.stdout.write(f"ready {service.bookie_id}\n")
        env.stdout.flush()

    run_bookie(config, real_world(), ready)
