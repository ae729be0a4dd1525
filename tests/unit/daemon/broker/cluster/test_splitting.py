"""The places where a bundle is split, by each algorithm."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import pytest
from bkdaemon.broker.topic.sent import Flow

from bkctl.errors import UsageError
from bkctl.model.bundle import hash_of
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.keys import config_of_keys, one_bundle


async def boundaries(admin: Admin) -> list[str]:
    return list((await admin.ok("GET", "/admin/v2/namespaces/t/n/bundles"))["boundaries"])


def hashes() -> list[int]:
    return sorted(hash_of(f"persistent://t/n/{number}") for number in range(4))


@pytest.mark.parametrize("by_itself", [True, False])
def test_bundles_are_split_by_the_default_algorithm(tmp_path: Path, by_itself: bool) -> None:
    config = config_of_keys(tmp_path, defaultNamespaceBundleSplitAlgorithm="topic_count_equally_divide")

    async def scenario(admin: Admin) -> None:
        await one_bundle(admin)
        if by_itself:
            await admin.service.balancer.run()
        else:
            await admin.ok("PUT", "/admin/v2/namespaces/t/n/0x00000000_0xffffffff/split")
        _, second, third, _ = hashes()
        middle = second + (third - second) // 2
        assert await boundaries(admin) == ["0x00000000", f"0x{middle:08x}", "0xffffffff"]

    administering(scenario, split_algorithm=config.split_algorithm, split_topics=3)


def test_bundles_are_split_by_traffic(tmp_path: Path) -> None:
    keys = {"loadBalancerNamespaceBundleMaxMsgRate": 100, "flowOrQpsDifferenceThresholdPercentage": 10}
    config = config_of_keys(tmp_path, defaultNamespaceBundleSplitAlgorithm="flow_or_qps_equally_divide", **keys)

    async def scenario(admin: Admin) -> None:
        await one_bundle(admin)
        rates = dict.fromkeys(hashes(), 27.0)

        def flow(*key: Hashable) -> Flow:
            kind, name = key[:2]
            return Flow(rates[hash_of(str(name))], 0) if kind == "in" else Flow(0, 0)

        admin.service.rates.of = flow  # type: ignore[method-assign]
        whole = ["0x00000000", "0xffffffff"]
        target = "/admin/v2/namespaces/t/n/0x00000000_0xffffffff/split"
        await admin.ok("PUT", target)
        assert await boundaries(admin) == whole, "108 a second are not 110"
        first, second, third, last = hashes()
        rates.update({first: 60, second: 50, third: 45, last: 10})
        await admin.ok("PUT", target)
        middle = first + (second - first) // 2 + 1
        after = third + (last - third) // 2 + 1
        assert await boundaries(admin) == [whole[0], f"0x{middle:08x}", f"0x{after:08x}", whole[1]]

    administering(
        scenario,
        split_algorithm=config.split_algorithm,
        split_message_rate=config.split_message_rate,
        split_slack_percentage=config.split_slack_percentage,
    )


def test_algorithms_that_are_not_supported_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"broker.conf:2: supportedNamespaceBundleSplitAlgorithms=x: not some of range"
    ):
        config_of_keys(tmp_path, supportedNamespaceBundleSplitAlgorithms="x")
    with pytest.raises(UsageError, match="range_equally_divide is not in supportedNamespaceBundleSplitAlgorithms"):
        config_of_keys(tmp_path, supportedNamespaceBundleSplitAlgorithms="topic_count_equally_divide")
    config = config_of_keys(tmp_path, supportedNamespaceBundleSplitAlgorithms="range_equally_divide")

    async def scenario(admin: Admin) -> None:
        await one_bundle(admin)
        target = "/admin/v2/namespaces/t/n/0x00000000_0xffffffff/split?splitAlgorithmName=topic_count_equally_divide"
        answer = await admin.ask("PUT", target)
        words = "Unsupported namespace bundle split algorithm, supported algorithms are [range_equally_divide]"
        assert (answer.status, answer.body["reason"]) == (412, words)

    administering(scenario, split_algorithms=config.split_algorithms)
