"""The division of slots between consumers: ring, ranges."""

from __future__ import annotations

from bkdaemon.broker.dispatch.slots import Ranges, Ring

from bkctl.codec.pulsar_hash import SLOTS
from tests.broker.scenarios import NamedConsumer


def test_joining_and_leaving_the_ring_moves_no_slot_between_others() -> None:
    ring = Ring()
    people = [NamedConsumer(f"c{i}") for i in range(5)]
    for one in people[:4]:
        ring.add(one)  # type: ignore[arg-type]
    before = [ring.owner(slot) for slot in range(SLOTS)]
    assert set(before) == set(people[:4])
    ring.add(people[4])  # type: ignore[arg-type]
    after = [ring.owner(slot) for slot in range(SLOTS)]
    assert all(a is b or a is people[4] for a, b in zip(after, before, strict=True))
    assert people[4] in after
    ring.remove(people[4])  # type: ignore[arg-type]
    assert [ring.owner(slot) for slot in range(SLOTS)] == before
    assert Ranges().owner(5) is None


def test_a_consumer_has_the_configured_number_of_points_on_the_ring() -> None:
    ring = Ring(points_each=1)
    for name in ("a", "b"):
        ring.add(NamedConsumer(name))  # type: ignore[arg-type]
    assert len(ring.ranges()) == 3, "each its arc, and what is beyond the last point is the first one's"


def test_the_ring_divides_slots_as_java_does() -> None:
    """What Pulsar 4.0.7 told of consumers a, b and b of a subscription, and where its keys went."""
    ring, people = Ring(), [NamedConsumer(name) for name in ("a", "b", "b")]
    for one in people:
        ring.add(one)  # type: ignore[arg-type]
    ranges = ring.ranges()
    assert (ranges[0][0], ranges[-1][1]) == (1, SLOTS - 1)
    told = [[(first, last) for first, last, owner in ranges if owner is one] for one in people]  # type: ignore[comparison-overlap]
    assert told[0][:6] == [(79, 115), (260, 403), (1511, 1535), (2849, 3615), (4205, 4372), (5162, 5588)]
    assert told[1][:6] == [(1, 78), (404, 637), (1536, 1942), (2317, 2642), (2735, 2848), (3616, 4128)]
    assert told[2][:6] == [(116, 259), (638, 1510), (1943, 2316), (2643, 2734), (4129, 4204), (4373, 5161)]
    assert all(ring.owner(slot) is owner for first, last, owner in ranges for slot in (first, last))
    owners = [people.index(ring.owner(Ring.slot_of(f"key-{i}".encode()))) for i in range(300)]  # type: ignore[arg-type]
    assert [owners.count(n) for n in range(3)] == [81, 110, 109]
    ring.remove(people[1])  # type: ignore[arg-type]
    ring.add(people[1])  # type: ignore[arg-type]
    assert ring.ranges() == ranges, "who comes back gets what it had"
