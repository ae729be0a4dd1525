"""Frames of captured clients, damaged: other clients are served, and no handler fails."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from bkctl.codec.pulsar import Command, encode_command
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import TOPIC, damaged_frame
from tests.unit.codec.pulsar_frames import frames

FRAMES_EACH = 40


@pytest.mark.parametrize("seed", range(12))
def test_damaged_frames_close_at_most_their_own_connection(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    random = Random(seed)
    sent: dict[str, list[bytes]] = {}
    for frame in frames():
        if frame.sender == "C" and frame.command not in ("CONNECT", "SEND", "PONG"):  # a SEND for nobody ends it all
            sent.setdefault(frame.command, []).append(frame.raw)
    kinds = sorted(sent)

    async def scenario(stage: Stage) -> None:
        good = await stage.client()
        await good.produce(TOPIC)
        for _ in range(15):
            bad = await stage.client()
            for _ in range(FRAMES_EACH):
                if bad.ended:
                    break
                bad.write(damaged_frame(random, random.choice(sent[random.choice(kinds)])))
                await asyncio.sleep(0.01)
            if not bad.ended:
                bad.cut()
        await asyncio.sleep(3)
        good.write(encode_command(Command.PING))
        assert (await good.next()).kind == Command.PONG
        good.publish(0)
        assert (await good.next()).kind == Command.SEND_RECEIPT

    with caplog.at_level(logging.WARNING):
        on_stage(scenario, namespaces=("public/default", "golden/ns1"), max_message_size=1 << 20)
    broken = [r.getMessage() + str(r.exc_info) for r in caplog.records if r.levelno >= logging.ERROR]
    assert broken == []
