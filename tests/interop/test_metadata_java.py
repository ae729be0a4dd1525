"""One metadata tree, two programs: what Java's tools make ours reads, what ours makes Java's tools read. No bookies."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator

import pytest

from bkctl.codec.layout import LedgerManager
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.connect import open_store
from bkctl.meta.store import MetadataStore
from bkctl.meta.underreplication import Underreplication
from bkctl.model.bookie import Cookie
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata
from bkctl.world import SystemClock
from tests.interop.java_cluster import JavaCluster, running

pytestmark = pytest.mark.java

B = tuple(BookieId(f"127.0.0.1:{port}") for port in (4001, 4002, 4003))
CLOSED = LedgerMetadata(
    3, 2, 2, (Ensemble(EntryId(0), B), Ensemble(EntryId(7), B[::-1])),
    digest_type=DigestType.HMAC, password=b"s3cret", ctime_ms=1700000000123, custom_metadata={"app": b"x"},
).closed_at(19, 1900)  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(0)


def with_store(cluster: JavaCluster, work: Callable[[MetadataStore], Awaitable[object]]) -> None:
    async def whole() -> None:
        store = await open_store(cluster.uri)
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(whole())


def our_cluster(cluster: JavaCluster, manager: LedgerManager, number: int) -> str:
    """A cluster made by our command beside Java's, and a configuration of Java's shell for it; its root."""
    root = f"/ours-{manager.value}"
    uri = f"zk+{manager.value}://127.0.0.1:{cluster.zookeeper_port}{root}"
    done = cluster.bkctl("-m", uri, "cluster", "init", "--yes")
    assert done.returncode == 0, done.stderr
    configuration = (cluster.home / "conf/bookie0.conf").read_text().splitlines()
    kept = [line for line in configuration if not line.startswith("metadataServiceUri")]
    (cluster.home / f"conf/bookie{number}.conf").write_text("\n".join([*kept, f"metadataServiceUri={uri}", ""]))
    return root


def test_both_make_the_same_tree(cluster: JavaCluster) -> None:
    root = our_cluster(cluster, LedgerManager.HIERARCHICAL, 11)

    def tree(at: str) -> dict[str, bytes | None]:
        uri = f"zk://127.0.0.1:{cluster.zookeeper_port}{at}"
        names = cluster.bkctl("-m", uri, "meta", "ls", "-r", "-o", "name").stdout.decode().split()
        return {name.removeprefix(at): cluster.bkctl("meta", "get", name, "--raw").stdout for name in names}

    java, ours = tree("/ledgers"), tree(root)
    assert len(java.pop("/INSTANCEID") or b"") == len(ours.pop("/INSTANCEID") or b"") == 36
    assert java == ours
    info = cluster.bkctl_json("cluster", "info")
    assert info["instance_id"] in cluster.shell("whatisinstanceid")
    assert info["layout"] == "hierarchical"


@pytest.mark.parametrize(
    ("manager", "number", "ids"),
    [
        (LedgerManager.LONG_HIERARCHICAL, 12, [0, 12345, 2**31, 2**40]),
        (LedgerManager.FLAT, 13, [0, 12345]),
    ],
)
def test_java_reads_the_layouts_that_we_write(
    cluster: JavaCluster, manager: LedgerManager, number: int, ids: list[int]
) -> None:
    root = our_cluster(cluster, manager, number)

    async def fill(store: MetadataStore) -> None:
        ledgers = await open_ledgers(store, root, manager)
        for ledger_id in ids:
            await ledgers.create(CLOSED, ledger_id)
        generated, _ = await ledgers.create(CLOSED)
        ids.append(generated)

    with_store(cluster, fill)
    listed = cluster.shell("--conf", number, "listledgers", "-m")
    for ledger_id in ids:
        assert f"ledgerID: {ledger_id}" in listed
    assert listed.count("length=1900, lastEntryId=19, digestType=MAC") == len(ids)
    assert base64.b64encode(b"x").decode() in listed or "app" in listed


def test_java_lists_our_markers_and_obeys_our_switch(cluster: JavaCluster) -> None:
    seen: list[object] = []

    async def mark(store: MetadataStore) -> None:
        under = Underreplication(store, "/ledgers", SystemClock())
        await under.ensure()
        await under.mark(5, [B[0]])
        await under.mark(5, [B[1]])
        await under.mark(2**33, [])
        await under.disable()
        await under.set_delay(77)

    with_store(cluster, mark)
    listed = cluster.shell("listunderreplicated", "-pmr")
    assert "5" in listed.split()
    assert str(2**33) in listed.split()
    for bookie in B[:2]:
        assert bookie in listed
    assert "Autorecovery is disabled" in cluster.shell("autorecovery")
    assert "77" in cluster.shell("lostbookierecoverydelay", "-get")
    cluster.shell("autorecovery", "-enable")
    cluster.shell("lostbookierecoverydelay", "-set", 30)

    async def look(store: MetadataStore) -> None:
        under = Underreplication(store, "/ledgers", SystemClock())
        seen.extend((await under.enabled(), await under.delay_s()))
        for ledger_id in (5, 2**33):
            lock = await under.lock(ledger_id, "localhost")
            assert lock is not None
            assert await under.complete(lock)

    with_store(cluster, look)
    assert seen == [True, 30]
    assert "5" not in cluster.shell("listunderreplicated").split()


def test_cookies_go_both_ways(cluster: JavaCluster) -> None:
    ours = Cookie(B[0], ("/j1", "/j2"), ("/l1", "/l2"), ("/i",), cluster.bkctl_json("cluster", "info")["instance_id"])

    async def write(store: MetadataStore) -> None:
        await BookieRegistry(store, "/ledgers").create_cookie(ours)

    with_store(cluster, write)
    shown = cluster.shell("cookie_get", B[0])
    for text in (f'bookieHost: "{B[0]}"', 'journalDir: "/j1,/j2"', r'ledgerDirs: "2\t/l1\t/l2"', r'indexDirs: "1\t/i"'):
        assert text in shown
    file = cluster.home / "cookie"
    file.write_bytes(cluster.bkctl("meta", "get", f"cookies/{B[0]}", "--raw").stdout.replace(b"4001", b"4002"))
    cluster.shell("cookie_create", "-cf", file, B[1])
    assert cluster.bkctl_json("meta", "get", f"cookies/{B[1]}")["value"]["bookie_id"] == B[1]
    assert cluster.bkctl_json("cluster", "info")["known_bookies"] == 2


def test_a_cluster_that_we_formatted_or_removed_is_one_for_java(cluster: JavaCluster) -> None:
    before = cluster.bkctl_json("cluster", "info")["instance_id"]
    formatted = cluster.bkctl_json("cluster", "format", "--yes")
    assert formatted["instance_id"] != before
    assert formatted["known_bookies"] == 0
    assert formatted["instance_id"] in cluster.shell("whatisinstanceid")
    cluster.shell("metaformat", "-nonInteractive", "-force")
    again = cluster.bkctl_json("cluster", "info")["instance_id"]
    assert again not in (before, formatted["instance_id"])
    assert cluster.bkctl("cluster", "nuke", "/ledgers", "--instance-id", again, "--yes").returncode == 0
    cluster.shell("initnewcluster")
    assert cluster.bkctl_json("cluster", "info")["layout"] == "hierarchical"
    root = "/ours-hierarchical"
    uri = f"zk://127.0.0.1:{cluster.zookeeper_port}{root}"
    instance_id = cluster.bkctl_json("-m", uri, "cluster", "info")["instance_id"]
    cluster.shell("--conf", 11, "nukeexistingcluster", "-zkledgersrootpath", root, "-instanceid", instance_id)
    assert cluster.bkctl("-m", uri, "cluster", "info").returncode == 4
