"""`namespace unload`: bundles are released by their owners."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import java_cluster
from tests.unit.cli.topic.live import Live


def test_bundles_without_an_owner_are_skipped() -> None:
    tree = golden.memory_tree()
    assert bkctl("tenant", "create", "new", "--yes", tree=tree).code == Exit.OK
    assert bkctl("namespace", "create", "new/ns", "--bundles", "2", "--yes", tree=tree).code == Exit.OK
    rows = bkctl("namespace", "unload", "new/ns", "-o", "json", tree=tree).json()["items"]
    assert [(row["bundle"], row["unloaded"], row["by"]) for row in rows] == [
        ("0x00000000_0x80000000", False, None),
        ("0x80000000_0xffffffff", False, None),
    ]
    assert bkctl("namespace", "unload", "new/ns", "--bundle", "0x1_0x2", tree=tree).code == Exit.NOT_FOUND
    refused = bkctl("namespace", "unload", "golden/ns1", tree=java_cluster())
    assert (refused.code, refused.stdout) == (Exit.REFUSED, ""), "owned: it asks"


def test_the_plan_names_the_broker_of_each_bundle() -> None:
    plan = bkctl("namespace", "unload", "golden/ns1", "--dry-run", "-o", "json", tree=java_cluster()).json()["plan"]
    assert plan["summary"] == "unload 4 bundles"
    assert plan["steps"][0] == "unload golden/ns1/0x00000000_0x40000000 by broker 127.0.0.1:28180"


def test_an_owner_that_does_not_answer_is_an_error_or_one_of_several_warnings() -> None:
    answer = bkctl("namespace", "unload", "golden/ns1", "--yes", "-o", "json", tree=java_cluster())
    assert (answer.code, answer.stdout, answer.error()["retryable"]) == (Exit.UNAVAILABLE, "", True)
    some = bkctl("namespace", "unload", "golden/ns1", "golden/none", "--yes", "-o", "json", tree=java_cluster())
    assert (some.code, some.json()["items"]) == (Exit.FINDINGS, [])
    assert len(some.json()["warnings"]) == 5


def test_the_owner_unloads_a_bundle(served: Live) -> None:
    assert served.bkctl("namespace", "create", "public/busy", "--bundles", 1, "--yes").code == Exit.OK
    topic = served.load("public/busy/t", 1)
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    done = served.bkctl(
        "namespace", "unload", "public/busy", "--bundle", "0x00000000_0xffffffff", "--yes", "-o", "json"
    )
    assert done.code == Exit.OK, done.stderr
    assert done.json()["items"] == [
        {"namespace": "public/busy", "bundle": "0x00000000_0xffffffff", "unloaded": True, "by": broker}
    ]
    (where,) = served.bkctl("topic", "where", topic, "-o", "json").json()["items"]
    assert (where["owner"], where["loaded"]) == (None, False)
    assert served.bkctl("namespace", "unload", "public/busy", "-o", "json").json()["items"][0]["unloaded"] is False
