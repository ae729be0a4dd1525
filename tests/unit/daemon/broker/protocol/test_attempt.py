"""Requests that create producers and consumers, closed and sent again before they are answered, in virtual time."""

from __future__ import annotations

from bkdaemon.broker.protocol.attempt import Attempt

from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import TOPIC


def test_a_request_sent_again_after_a_close_is_not_replaced_by_the_first_one() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        one = {"topic": TOPIC, "producer_id": 0, "producer_name": "p"}
        two = {"topic": TOPIC, "subscription": "s", "subType": 0, "consumer_id": 0}
        client.write(
            encode_command(Command.PRODUCER, request_id=1, **one)
            + encode_command(Command.SUBSCRIBE, request_id=2, **two)
            + encode_command(Command.CLOSE_PRODUCER, request_id=3, producer_id=0)
            + encode_command(Command.CLOSE_CONSUMER, request_id=4, consumer_id=0)
            + encode_command(Command.PRODUCER, request_id=5, **one)
            + encode_command(Command.SUBSCRIBE, request_id=6, **two)
        )
        told = [await client.next() for _ in range(4)]
        assert {(t.kind, t.message.request_id) for t in told} == {
            (Command.SUCCESS, 3),
            (Command.SUCCESS, 4),
            (Command.PRODUCER_SUCCESS, 5),
            (Command.SUCCESS, 6),
        }
        client.flow(1)
        client.publish(0)
        await client.next(Command.SEND_RECEIPT)
        await client.messages(1)
        (connection,) = stage.server.connections
        assert (connection.producer_attempts, connection.consumer_attempts, client.said) == ({}, {}, [])

    on_stage(scenario)


class Table:
    """A table of consumers by number, its attempts, and the errors that were sent to the client."""

    def __init__(self) -> None:
        self.created: dict[int, str | None] = {}
        self.attempts: dict[int, Attempt[str]] = {}
        self.errors: list[tuple[ErrorCode, str]] = []

    def attempt(self, number: int = 4) -> Attempt[str]:
        return Attempt(self.created, self.attempts, number)

    def fail(self, attempt: Attempt[str]) -> None:
        attempt.failing(lambda code, text: self.errors.append((code, text)))(ErrorCode.UNKNOWN, "why")


def test_an_attempt_reserves_its_number_until_it_ends() -> None:
    table = Table()
    attempt = table.attempt()
    assert (table.created, table.attempts) == ({4: None}, {4: attempt})
    assert attempt.active
    attempt.done("consumer")
    assert (table.created, table.attempts) == ({4: "consumer"}, {})
    assert not attempt.active


def test_a_failed_attempt_frees_its_number_and_reports_the_error() -> None:
    table = Table()
    table.fail(table.attempt())
    assert (table.created, table.attempts) == ({}, {})
    assert table.errors == [(ErrorCode.UNKNOWN, "why")]


def test_an_attempt_that_the_client_has_closed_creates_nothing_and_reports_no_error() -> None:
    table = Table()
    first, second = table.attempt(1), table.attempt(2)
    del table.created[1], table.created[2]
    assert not first.active
    first.done("consumer")
    table.fail(second)
    assert (table.created, table.attempts, table.errors) == ({}, {}, [])


def test_an_attempt_does_not_take_the_place_of_a_later_one_with_its_number() -> None:
    table = Table()
    first = table.attempt()
    del table.created[4]
    second = table.attempt()
    first.done("old")
    table.fail(first)
    assert (table.created, table.attempts, table.errors) == ({4: None}, {4: second}, [])
    second.done("new")
    first.done("old")
    assert (table.created, table.attempts) == ({4: "new"}, {})
