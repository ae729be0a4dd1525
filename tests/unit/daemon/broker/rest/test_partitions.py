"""New partitions of a topic."""

from __future__ import annotations

from bkctl.model.topic import EARLIEST
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.stored_namespace import prepare_stored
from tests.unit.log.logs import until


def test_new_partitions_get_the_subscriptions_of_the_first() -> None:
    name = "persistent://t1/n/parts"

    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        path = "/admin/v2/persistent/t1/n/parts"
        await admin.ok("PUT", f"{path}/partitions", 2)
        await admin.ok("POST", f"{path}/partitions", 3)  # nobody has used it yet
        first = await admin.topic(f"{name}-partition-0")
        await first.subscription("s", durable=True, initial=EARLIEST, properties={"a": "b"})
        await first.subscription("reader", durable=False, initial=EARLIEST)
        await admin.ok("POST", f"{path}/partitions", 5)
        new = await admin.topic(f"{name}-partition-4")
        assert set(new.subscriptions) == {"s"}
        new.ledger.add_many([b"1", b"2"])
        await until(lambda: new.ledger.added == 2)
        found = new.subscriptions["s"]
        assert (found.properties, found.cursor.backlog(), found.durable) == ({"a": "b"}, 2, True)
        assert set((await admin.topic(f"{name}-partition-2")).subscriptions) == set()

    administering(scenario)
