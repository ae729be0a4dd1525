"""Names of tenants and namespaces."""

from __future__ import annotations

import pytest

from bkctl.cli.namespace._names import namespace_name, tenant_name
from bkctl.errors import Exit, UsageError
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE


@pytest.mark.parametrize("name", ["public", "a-b=c:d.e_f", "ü1"])
def test_letters_digits_and_some_signs_are_a_name(name: str) -> None:
    assert tenant_name(name) == name
    assert namespace_name(f"{name}/{name}") == f"{name}/{name}"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\n", "a?"])
def test_other_signs_are_not(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid tenant name"):
        tenant_name(name)
    with pytest.raises(UsageError):
        namespace_name(f"t/{name}")


@pytest.mark.parametrize("name", ["t", "/n", "t/", "a/b/c/d"])
def test_a_namespace_has_two_parts(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid namespace"):
        namespace_name(name)


def test_a_namespace_of_pulsar_1_is_not_supported() -> None:
    with pytest.raises(UsageError, match="Pulsar 1") as caught:
        namespace_name("tenant/cluster/namespace")
    assert caught.value.hint == "tenant/namespace"


@pytest.mark.parametrize(
    "words",
    [
        *(f"namespace {verb} a//b" for verb in ("show", "create", "delete", "unload", "policy get")),
        "namespace policy unset a//b ttl",
        "namespace policy set a//b ttl 3",
        "namespace create t/c/n",
    ],
)
def test_each_verb_refuses_a_wrong_name_before_connecting(words: str) -> None:
    answer = bkctl("-m", NOWHERE, *words.split(" "), "--yes")
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
