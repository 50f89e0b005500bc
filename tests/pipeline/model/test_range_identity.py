"""A range is named by everything that identifies it, and by nothing of its writer."""

from dataclasses import replace

from holdfast.pipeline.model.range_identity import RangeIdentity

IDENTITY = RangeIdentity(
    pipeline_id="p1", generation=2, topic="orders", topic_id="t9", partition=3, start=5, end=9, legacy=False
)
OTHERS = (
    replace(IDENTITY, pipeline_id="p2"),
    replace(IDENTITY, generation=1),
    replace(IDENTITY, topic_id="t8"),
    replace(IDENTITY, partition=4),
    replace(IDENTITY, start=4),
    replace(IDENTITY, end=10),
)


def test_every_part_of_it_is_in_token_and_file_name() -> None:
    assert IDENTITY.token == "p1:2:t9:3:5-9"
    assert len({each.token for each in (IDENTITY, *OTHERS)}) == 7
    assert len({each.full_name for each in (IDENTITY, *OTHERS)}) == 7


def test_pipelines_and_recreated_topics_share_no_file_of_a_folder() -> None:
    assert IDENTITY.offsets_name == "00000000000000000005-00000000000000000009-p1-t9"
    names = {IDENTITY.offsets_name, *(each.offsets_name for each in OTHERS if each.partition == 3)}
    assert len(names) == 5  # the generation is the folder's


def test_the_fence_is_of_a_partition_of_a_generation_of_a_pipeline() -> None:
    assert IDENTITY.partition_key == "p1:2:orders:3"


def test_what_an_earlier_release_began_keeps_its_names() -> None:
    legacy = replace(IDENTITY, legacy=True)
    assert legacy.token == "p1:2:orders:3:5-9"
    assert legacy.offsets_name == "00000000000000000005-00000000000000000009"
    assert legacy.full_name == "p1-2-orders-00003-00000000000000000005-00000000000000000009"


def test_a_source_without_topic_ids_is_named_by_its_topic() -> None:
    unidentified = replace(IDENTITY, topic_id="")
    assert unidentified.token == "p1:2:orders:3:5-9"
    assert unidentified.offsets_name == "00000000000000000005-00000000000000000009-p1"
