"""What the driver makes of bookies' replies."""

from __future__ import annotations

import pytest

from bkctl.client.client import BookKeeper
from bkctl.codec.wire import Reply
from bkctl.errors import LedgerFenced
from bkctl.model.status import Status
from tests.unit.client.cluster import SimCluster, simulate


def test_every_refusal_of_one_socket_read_reaches_the_writer() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 3)
        bookie = writer.metadata.last_ensemble.bookies[2]
        cluster.fabric.part("client", bookie.partition(":")[0])
        writer.append_many([b"0", b"1"])
        writer._add_answered(2, bookie, [Reply(0, Status.IO_ERROR, 0, 0), Reply(1, Status.FENCED, 0, 1)])
        with pytest.raises(LedgerFenced):
            await writer.flush()

    simulate(scenario)


def test_a_refusal_after_good_replies_of_one_socket_read_replaces_the_bookie() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 3)
        bookie = writer.metadata.last_ensemble.bookies[2]
        cluster.fabric.part("client", bookie.partition(":")[0])
        writer.append_many([b"0", b"1", b"2"])
        statuses = (Status.OK, Status.TOO_MANY_REQUESTS, Status.READ_ONLY)
        replies = [Reply(e, status, 0, e) for e, status in enumerate(statuses)]
        writer._add_answered(2, bookie, replies)
        assert await writer.flush() == 2
        assert bookie not in writer.metadata.last_ensemble.bookies
        assert writer.metadata.last_ensemble.first_entry_id in (0, 1)

    simulate(scenario)
