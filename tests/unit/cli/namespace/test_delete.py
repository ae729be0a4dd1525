"""`namespace delete`: namespaces without topics, by their owner or in the metadata."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import EMPTY, empty_topics
from tests.unit.cli.topic.live import Live


def test_only_namespaces_without_topics_are_deleted() -> None:
    tree = empty_topics()
    assert bkctl("namespace", "create", "new/a", "new/b", "--yes", tree=tree).code == Exit.OK
    gone = bkctl("namespace", "delete", "new/a", "new/ns", "new/none", "--yes", "-o", "json", tree=tree)
    assert gone.code == Exit.FINDINGS
    assert gone.json()["items"] == [{"namespace": "new/a", "deleted": True, "by": "metadata"}]
    assert [warning.split(":")[0] for warning in gone.json()["warnings"]] == ["new/ns", "new/none"]
    refused = bkctl("namespace", "delete", "new/ns", "--yes", "-o", "json", tree=tree)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    assert refused.error()["message"] == f"new/ns has 2 topics, including {EMPTY[0]}"
    missing = bkctl("namespace", "delete", "new/none", "--yes", tree=tree)
    assert (missing.code, missing.stdout) == (Exit.NOT_FOUND, "")
    assert bkctl("namespace", "list", "new", "-o", "name", tree=tree).stdout.split() == ["new/b", "new/ns"]


def test_nothing_is_deleted_without_confirmation_or_in_a_dry_run() -> None:
    tree = empty_topics()
    assert bkctl("topic", "delete", *EMPTY, "--yes", tree=tree).code == Exit.OK
    refused = bkctl("namespace", "delete", "new/ns", tree=tree)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = bkctl("namespace", "delete", "new/ns", "--dry-run", "-o", "json", tree=tree).json()["plan"]
    assert (plan["summary"], plan["subject"]) == ("delete new/ns", "new/ns")
    assert bkctl("namespace", "show", "new/ns", tree=tree).code == Exit.OK


def test_a_broker_that_owns_a_bundle_deletes_the_namespace(served: Live) -> None:
    assert served.bkctl("namespace", "create", "public/gone", "--bundles", 1, "--yes").code == Exit.OK
    topic = served.load("public/gone/t")
    refused = served.bkctl("namespace", "delete", "public/gone", "--yes")
    assert (refused.code, topic in refused.stderr) == (Exit.REFUSED, True)
    assert served.bkctl("topic", "delete", topic, "--yes").code == Exit.OK
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    gone = served.bkctl("namespace", "delete", "public/gone", "--yes", "-o", "json")
    assert gone.code == Exit.OK, gone.stderr
    assert gone.json() == {"namespace": "public/gone", "deleted": True, "by": broker}
    assert served.bkctl("namespace", "show", "public/gone").code == Exit.NOT_FOUND
