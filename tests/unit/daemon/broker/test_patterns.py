"""Regular expressions of clients and policies: which are valid, how they match, and many names beside a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.broker import patterns
from bkdaemon.broker.cluster import isolation
from bkdaemon.broker.patterns import InvalidPattern, UnsupportedPattern, compiled
from bkdaemon.broker.protocol.server_limits import ServerLimits

from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.errors import Unavailable
from bkctl.model.topic import TopicName
from bkctl.world import ThreadWorker
from tests.broker.admin import Admin, administering
from tests.broker.raw import Stage, on_stage
from tests.unit.daemon.broker.keys import config_of_keys

TOPIC = "persistent://public/default/t"


class RecordingWorker:
    """Runs work on the loop, one piece a turn. Attributes: pieces: names that were matched in each."""

    def __init__(self) -> None:
        self.pieces: list[int] = []
        self.names = 0

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def run() -> None:
            before = self.names
            result = work()
            self.pieces.append(self.names - before)
            done(result, None)

        asyncio.get_running_loop().call_soon(run)

    def close(self) -> None:
        """Does nothing."""

    def key(self, name: str) -> str:
        self.names += 1
        return name


@pytest.mark.parametrize(
    ("text", "fits", "not_fits"),
    [
        ("public/default/a+", "public/default/aaa", "public/default/aab"),
        (r"\Qa.b\E.*", "a.bc", "axbc"),
        (r"(?i)T[0-9]{2}\w*", "t12x", "t1"),
        (".*", "", "a\nb"),
        ("a|ab", "ab", "abc"),
        ("é+", "éé", "e"),
    ],
)
def test_a_pattern_fits_the_whole_text(text: str, fits: str, not_fits: str) -> None:
    assert compiled(text).fits(fits)
    assert not compiled(text).fits(not_fits)


@pytest.mark.parametrize("text", ["(", "[a", "a{2,1}", "*", "a\\", "(?P<n", "\ud800"])
def test_text_that_is_no_regular_expression_is_invalid(text: str) -> None:
    with pytest.raises(InvalidPattern, match="regular expression") as caught:
        compiled(text)
    assert not isinstance(caught.value, UnsupportedPattern) or text == "\ud800"


@pytest.mark.parametrize(
    "text", ["(?=a)b", r"(a)\1", "a*+b", "(?<!a)b", ".{1,1000}", "(((a{99}){99}){99})", "a" * 2000]
)
def test_lookarounds_and_programs_that_are_too_large_are_unsupported(text: str) -> None:
    with pytest.raises(UnsupportedPattern):
        compiled(text)


@pytest.mark.parametrize("text", ["(a+)+b", "(a|aa)+b", "(.*a){20}b"])
def test_a_pattern_that_would_backtrack_for_ever_is_matched_in_linear_time(text: str) -> None:
    assert not compiled(text).fits("a" * 5000)


async def test_100_000_names_are_matched_in_small_pieces() -> None:
    worker = RecordingWorker()
    names = [f"persistent://public/default/topic-{i}" for i in range(100_000)]
    pattern = compiled("persistent://public/default/topic-.*[05]")
    found = await pattern.matching(names, worker, worker.key)
    assert found == names[::5]
    assert sum(worker.pieces) == len(names)
    cost_max = patterns.SLICE_COST_MAX + pattern.size * len(names[-1])
    assert max(worker.pieces) * pattern.size * len(names[0]) <= cost_max


async def test_the_loop_runs_while_100_000_names_are_matched_on_a_thread() -> None:
    worker, turns = ThreadWorker("patterns"), 0
    names = [f"persistent://public/default/topic-{i}" for i in range(100_000)]
    matching = asyncio.ensure_future(
        compiled(".*(a|b)*c").matching(names, worker, lambda name: str(TopicName.parse(name).partitioned))
    )
    while not matching.done():
        turns += 1
        await asyncio.sleep(0)
    assert await matching == [name for name in names if name.endswith("c")]
    assert turns > 1000
    worker.close()


async def test_matching_that_takes_too_long_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MATCH_SECONDS_MAX", -1.0)
    with pytest.raises(Unavailable, match="matching 3 topics"):
        await compiled("a").matching(["a", "b", "c"], RecordingWorker(), str)


def test_topics_of_a_namespace_are_unfiltered_for_a_pattern_that_only_java_knows() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        kinds = Command.GET_TOPICS_OF_NAMESPACE, Command.GET_TOPICS_OF_NAMESPACE_RESPONSE, Command.ERROR
        told = await client.ask(*kinds, namespace="public/default", topics_pattern="public/default/(?!x).*")
        assert (list(told.topics), told.filtered) == ([TOPIC], False)
        told = await client.ask(*kinds, namespace="public/default", topics_pattern="(a+)+b")
        assert (list(told.topics), told.filtered) == ([], True)
        told = await client.ask(
            Command.WATCH_TOPIC_LIST,
            Command.WATCH_TOPIC_LIST_SUCCESS,
            Command.ERROR,
            watcher_id=1,
            namespace="public/default",
            topics_pattern="public/default/(?!x).*",
        )
        assert told.error == ErrorCode.INVALID_TOPIC_NAME
        assert "not supported by RE2" in told.message

    on_stage(scenario)


def test_changes_of_a_namespace_while_a_watched_list_is_made_are_one_more_list() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        asked = {"namespace": "public/default", "watcher_id": 1, "topics_pattern": ".*"}
        await client.ask(Command.WATCH_TOPIC_LIST, Command.WATCH_TOPIC_LIST_SUCCESS, **asked)
        for i in range(20):
            client.send(Command.PRODUCER, request_id=1000 + i, topic=f"{TOPIC}{i}", producer_id=i)
        wanted = {f"{TOPIC}{i}" for i in range(20)}
        seen: set[str] = set()
        while seen != wanted:
            seen |= set((await client.next(Command.WATCH_TOPIC_UPDATE)).message.new_topics)

    on_stage(scenario)


def test_an_isolation_policy_with_a_pattern_that_re2_does_not_know_fits_nothing_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not isolation.matches(["(?=x)public/default", 7], "public/default")
    assert isolation.matches(["public/.*"], "public/default")
    assert not isolation.matches(["(a+)+b"], "a" * 5000)
    assert [r.getMessage() for r in caplog.records if "not supported by RE2" in r.getMessage()]


@pytest.mark.parametrize("namespaces", [["("], ["(?=x)y"], ["a"] * 300])
def test_an_isolation_policy_with_an_invalid_pattern_or_too_many_is_400(namespaces: list[str]) -> None:
    async def scenario(admin: Admin) -> None:
        path = "/admin/v2/clusters/lab/namespaceIsolationPolicies/p"
        parameters = {"min_limit": "1", "usage_threshold": "80"}
        policy = {
            "namespaces": ["public/.*"],
            "primary": ["a.*"],
            "secondary": [],
            "auto_failover_policy": {"policy_type": "min_available", "parameters": parameters},
        }
        await admin.ok("POST", path, policy)
        assert (await admin.ask("POST", path, policy | {"namespaces": namespaces})).status == 400

    administering(scenario)


def test_patterns_are_left_to_clients_if_configured(tmp_path: Path) -> None:
    config = config_of_keys(tmp_path, enableBrokerSideSubscriptionPatternEvaluation="false")

    async def scenario(stage: Stage) -> None:
        stage.server.limits = ServerLimits.of(config)
        client = await stage.client(connect=False)
        client.send(Command.CONNECT, client_version="raw", protocol_version=20)
        connected = (await client.next(Command.CONNECTED)).message
        assert not connected.feature_flags.supports_topic_watchers
        await client.produce(TOPIC)
        asked = {"namespace": "public/default", "topics_pattern": "public/default/z.*"}
        listed = await client.ask(
            Command.GET_TOPICS_OF_NAMESPACE, Command.GET_TOPICS_OF_NAMESPACE_RESPONSE, mode=0, **asked
        )
        assert (listed.filtered, list(listed.topics)) == (False, [TOPIC])
        told = await client.ask(Command.WATCH_TOPIC_LIST, Command.ERROR, watcher_id=1, **asked)
        words = "Unable to create topic list watcher: Evaluating subscription patterns is disabled."
        assert (told.error, told.message) == (ErrorCode.NOT_ALLOWED, words)

    on_stage(scenario)
