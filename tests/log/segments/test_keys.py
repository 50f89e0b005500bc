"""Keys say whose segment it is, sort by offset, and are read back exactly."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.log.segments import SegmentKey, parse_segment_key, partition_prefix, segment_key, shared_key
from holdfast.vocabulary.errors import InvalidError

ids = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
offsets = st.integers(0, 2**63 - 2)


@settings(deadline=None)
@given(ids, st.integers(0, 2**31 - 1), offsets, st.integers(1, 1000), st.integers(0, 2**63 - 1), ids)
def test_a_key_reads_back_as_what_it_was_made_of(
    topic_id: str, partition: int, base: int, span: int, epoch: int, upload_id: str
) -> None:
    end = min(base + span, 2**63 - 1)
    key = segment_key(topic_id, partition, base, end, epoch, upload_id, prefix="")
    assert parse_segment_key(key) == SegmentKey(topic_id, partition, base, end, epoch, upload_id)
    assert key.startswith(partition_prefix(topic_id, partition))
    below = segment_key(topic_id, partition, base, end, epoch, upload_id, prefix="cluster-1/")
    assert below == f"cluster-1/{key}"
    assert parse_segment_key(below) == parse_segment_key(key)
    assert parse_segment_key(f"other/{below}") is None


@settings(deadline=None)
@given(st.lists(offsets, min_size=2, unique=True))
def test_keys_sort_by_offset(bases: list[int]) -> None:
    keys = [segment_key("t", 0, base, base + 1, 1, "u", prefix="") for base in sorted(bases)]
    assert keys == sorted(keys)


def test_ids_with_dashes_do_not_confuse() -> None:
    key = segment_key("a-1", 2, 3, 4, 5, "-6-7", prefix="")
    assert key == "segments/a-1/2/00000000000000000003-00000000000000000004-5--6-7.strm"
    assert parse_segment_key(key) == SegmentKey("a-1", 2, 3, 4, 5, "-6-7")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "segments/t/0/x.strm",
        shared_key("upload", prefix=""),
        shared_key("upload", prefix="cluster/"),
        segment_key("t", 0, 0, 1, 0, "u", prefix="") + "\n",
        segment_key("t", 0, 0, 1, 0, "u", prefix="").replace("/0/", "/00/"),
        segment_key("t", 0, 0, 1, 0, "u", prefix="").replace("/0/", "/4294967296/"),
        "segments/t/0/00000000000000000005-00000000000000000005-1-u.strm",
        "segments/t/0/00000000000000000005-99999999999999999999-1-u.strm",
        "segments/t/٣/00000000000000000005-00000000000000000006-1-u.strm",
    ],
)
def test_what_is_no_segments_key_is_not_taken_for_one(key: str) -> None:
    assert parse_segment_key(key) is None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("a/b", 0, 0, 1, 0, "u"), "topic id"),
        (("t", -1, 0, 1, 0, "u"), "partition"),
        (("t", 0, 1, 1, 0, "u"), "offsets"),
        (("t", 0, 0, 2**63, 0, "u"), "offsets"),
        (("t", 0, 0, 1, -1, "u"), "epoch"),
        (("t", 0, 0, 1, 0, ""), "upload id"),
    ],
)
def test_what_cannot_be_a_key_is_refused(args: tuple[str, int, int, int, int, str], says: str) -> None:
    with pytest.raises(InvalidError, match=says):
        segment_key(*args, prefix="")
