"""Metrics of the streams between agents."""

from prometheus_client.parser import text_string_to_metric_families
from tests.support.peers import MemberTable, StreamNode, stream_node
from tests.support.waiting import async_until

from holdfast.gateways.http.metrics.exposition import render_exposition
from holdfast.gateways.http.metrics.peers import peer_families


def samples(node: StreamNode) -> dict[tuple[str, ...], float]:
    """Every sample by name and labels."""
    page = render_exposition(peer_families(node.peers)).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_both_ends_count_what_went_over_a_stream() -> None:
    table = MemberTable()
    async with stream_node(table, "ann") as ann, stream_node(table, "bob") as bob:
        await ann.ask("bob", bytes(10_000))
        sent, taken = samples(ann), samples(bob)
    assert sent["holdfast_peer_connected", "bob"] == 1
    assert sent["holdfast_peer_connects_total", "bob"] == 1
    assert sent["holdfast_peer_bytes_total", "bob", "to", "sent"] > 10_000
    assert taken["holdfast_peer_bytes_total", "ann", "from", "received"] > 10_000
    assert taken["holdfast_peer_frames_total", "ann", "from", "sent"] >= 1
    assert sent["holdfast_peer_round_trip_seconds_count", "bob"] == 1
    assert sent["holdfast_peer_unanswered_bytes", "bob"] == 0
    assert sent["holdfast_peer_refused_hellos_total",] == 0


async def test_what_ended_a_connection_is_a_label() -> None:
    table = MemberTable()
    async with stream_node(table, "ann") as ann:
        async with stream_node(table, "bob"):
            stream = await ann.stream_to("bob")
        await async_until(lambda: not stream.connected)
        counted = samples(ann)
        assert counted["holdfast_peer_disconnects_total", "bob", "closed"] == 1
        assert counted["holdfast_peer_connected", "bob"] == 0
