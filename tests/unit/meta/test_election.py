"""The election of the auditor, on both stores."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.errors import Unavailable
from bkctl.meta.election import Election
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import MetadataStore
from bkctl.model.ids import BookieId
from tests.zookeeper_fixture import Stores

A, B, C = (BookieId(f"10.0.0.{i}:3181") for i in (1, 2, 3))


def test_the_candidate_of_the_lowest_vote_is_the_auditor(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, c: MetadataStore, root: str) -> None:
        elections = [Election(store, root) for store in (a, b, c)]
        assert await elections[0].auditor() is None
        first = await elections[0].win(A)
        assert await elections[0].win(A) == first  # one vote a session
        second = asyncio.create_task(elections[1].win(B))
        while len(await elections[0].votes()) < 2:
            pass
        third = asyncio.create_task(elections[2].win(C))
        while len(await elections[0].votes()) < 3:
            pass
        assert await elections[2].auditor() == A
        assert await elections[0].holds(first)
        assert (await a.get(elections[0].base)).data == b'bookieId: "10.0.0.1:3181"\n'
        await b.close()  # a candidate in the middle goes: no other candidate wins thereby
        with pytest.raises(Unavailable):
            await second
        assert not third.done()
        await elections[0].resign()
        won = await third
        assert won.candidate == C
        assert not await elections[0].holds(first)
        assert await elections[2].holds(won)
        assert await elections[2].auditor() == C

    stores.run(scenario, sessions=3)


def test_a_vote_whose_answer_was_lost_is_found_again() -> None:
    async def scenario() -> None:
        lost = [True]

        async def lose(operation: str, path: str) -> None:
            if operation == "create" and "V_" in path and lost.pop() if lost else False:
                raise Unavailable("the answer is lost")

        election = Election(MemoryStore(MemoryTree(), after=lose), "/l")
        with pytest.raises(Unavailable):
            await election.win(A)
        vote = await election.win(A)
        assert [v.path for v in await election.votes()] == [vote.path]

    asyncio.run(scenario())
