"""Captured clients whose frames were damaged on the way: the broker serves everybody else, and no handler breaks."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from bkctl.codec.pulsar import Command, encode_command
from tests.broker.raw import Stage, on_stage
from tests.unit.codec.test_pulsar import frames

TOPIC = "persistent://public/default/t"
FRAMES_EACH = 40


def damaged(random: Random, raw: bytes) -> bytes:
    """A frame with a few bytes changed, mostly behind its sizes, so that more than the frame decoder is reached."""
    data = bytearray(raw)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        low = 8 if random.random() < 0.9 else 0
        if len(data) > low:
            data[random.randrange(low, len(data))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
    return bytes(data)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_frames_end_their_own_connection_at_most(seed: int, caplog: pytest.LogCaptureFixture) -> None:
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
                bad.write(damaged(random, random.choice(sent[random.choice(kinds)])))
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
