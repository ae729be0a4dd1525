"""The election of the auditor: the candidate with the lowest vote.

    auditorelection               the winner's name, for information only
    auditorelection/V_##########  ephemeral, one a candidate, with its name

A candidate watches the vote just before its own, and reads the votes again when that one is deleted; it never assumes
to have won. Two auditors for a short time do no harm: every marker is created or merged by compare-and-set.
Source: ZkLedgerAuditorManager.java, AuditorElector.java.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from bkctl.codec.underreplication import decode_holder, encode_holder, vote_number
from bkctl.errors import AlreadyExists, NotFound
from bkctl.meta import paths
from bkctl.meta.store import MetadataStore, wakes
from bkctl.model.ids import BookieId

VOTE_PREFIX: Final = "V_"


class Vote(NamedTuple):
    """A candidate's node and name."""

    number: int
    path: str
    candidate: BookieId | None
    session_id: int


class Election:
    """The election below a root; one candidate a session."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self.store = store
        self.base = f"{root}/{paths.UNDERREPLICATION}/auditorelection"

    async def votes(self) -> list[Vote]:
        """All votes, the auditor's first. Other names are ignored."""
        try:
            names = await self.store.children(self.base)
        except NotFound:
            return []
        numbered = sorted((number, name) for name in names if (number := vote_number(name)) is not None)
        nodes = await self.store.get_many([f"{self.base}/{name}" for _, name in numbered])
        votes = []
        for (number, name), node in zip(numbered, nodes, strict=True):
            if node is not None:
                path = f"{self.base}/{name}"
                candidate = decode_holder(node.data, source=path)
                who = BookieId(candidate) if candidate is not None else None
                votes.append(Vote(number, path, who, node.stat.ephemeral_owner))
        return votes

    async def auditor(self) -> BookieId | None:
        """The candidate of the lowest vote, or None."""
        votes = await self.votes()
        return votes[0].candidate if votes else None

    async def win(self, candidate: BookieId) -> Vote:
        """Votes, and returns when this candidate's vote is the lowest: it is the auditor.

        Raises:
            Unavailable: the store does not answer; call again, a vote that was made is found.
        """
        while True:
            mine, before = await self._standing(candidate)
            if before is None:
                await self._publish(candidate)
                return mine
            gone = asyncio.Event()
            cancel = await self.store.watch_data(before.path, wakes(gone))
            try:
                if await self.store.exists(before.path) is not None:
                    await gone.wait()
            finally:
                cancel()

    async def resign(self) -> None:
        """Deletes the vote of this session; to be called before the auditor is stopped."""
        for vote in await self.votes():
            if vote.session_id == self.store.session_id:
                try:
                    await self.store.delete_any(vote.path)
                except NotFound:
                    pass

    async def holds(self, vote: Vote) -> bool:
        """True while this vote exists and is the lowest; an auditor checks it before it writes."""
        votes = await self.votes()
        return bool(votes) and votes[0].path == vote.path and votes[0].session_id == self.store.session_id

    async def _standing(self, candidate: BookieId) -> tuple[Vote, Vote | None]:
        """Returns our vote, created if this session has none, and the one just before it."""
        while True:
            votes = await self.votes()
            own = [index for index, vote in enumerate(votes) if vote.session_id == self.store.session_id]
            if own:
                index = own[0]
                return votes[index], votes[index - 1] if index else None
            await self.store.create(
                f"{self.base}/{VOTE_PREFIX}", encode_holder(candidate), ephemeral=True, sequence=True, parents=True
            )

    async def _publish(self, candidate: BookieId) -> None:
        data = encode_holder(candidate)
        try:
            await self.store.create(self.base, data, parents=True)
        except AlreadyExists:
            await self.store.overwrite(self.base, data)
