"""`holdfast segment`: what a person sees, and what a script can rely on."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.segments import MemoryObjects, a_batch, a_segment, some_batches

from holdfast.cli.main import main
from holdfast.log.batches import Record, decode, encode
from holdfast.log.segments import decode_blocks, read_tail
from holdfast.log.segments.v1 import export_v1, import_v1

GOLDEN = Path(__file__).parent / "golden"
Captured = pytest.CaptureFixture[str]


def records_in(path: Path) -> list[Record]:
    data = path.read_bytes()
    blocks = read_tail(data)[1].blocks
    return [record for batch in decode_blocks(data[blocks[0].start : blocks[-1].end]) for record in decode(batch)]


def test_inspect_shows_every_part(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["segment", "inspect", str(GOLDEN / "v2-stored.strm")]) == 0
    text = capsys.readouterr().out
    for part in ("header: ", "footer: ", "index: ", "blocks", "producers", "4711", "3 from offset 900", "stored"):
        assert part in text
    for check in ("header", "footer", "index", "producers", "whole segment", "blocks"):
        assert f"ok   {check}" in text
    assert "All checksums are correct." in text


def test_inspect_for_programs_is_one_object_per_segment(capsys: Captured) -> None:
    assert main(["segment", "inspect", str(GOLDEN / "v2-shared.strm"), "--json"]) == 0
    *segments, whole = map(json.loads, capsys.readouterr().out.splitlines())
    assert [segment["header"]["partition"] for segment in segments] == [0, 1, 2]
    assert all(segment["ok"] and segment["footer"]["record_count"] == 10 for segment in segments)
    assert [block["codec"] for block in segments[0]["blocks"]] == ["lz4"] * len(segments[0]["blocks"])
    assert whole["ok"]
    assert [entry["start"] for entry in whole["directory"]] == [segment["start"] for segment in segments]


def test_inspect_reads_urls(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "a b.strm"
    path.write_bytes(a_segment())
    assert main(["segment", "inspect", f"file://{tmp_path}/a%20b.strm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["ok"]
    assert list(tmp_path.iterdir()) == [path]  # looking leaves nothing behind


def test_inspect_opens_the_folder_of_an_object(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def open_objects(url: str, **_: object) -> AsyncIterator[MemoryObjects]:
        opened.append(url)
        yield MemoryObjects({"x.strm": a_segment()})

    monkeypatch.setattr("holdfast.cli.segment.open_objects", open_objects)
    assert main(["segment", "inspect", "s3://bucket/a/b/x.strm?region=here", "--json"]) == 0
    assert opened == ["s3://bucket/a/b?region=here"]
    capsys.readouterr()
    assert main(["segment", "inspect", "s3://me:secret@bucket/a/y.strm"]) == 2
    said = capsys.readouterr().err
    assert "s3://bucket/a" in said
    assert "secret" not in said


def test_inspect_of_damage_says_where_and_fails(tmp_path: Path, capsys: Captured) -> None:
    damaged = bytearray(a_segment(some_batches(30)))
    place = read_tail(damaged)[1].blocks[1]
    damaged[place.start + 40] ^= 1
    (tmp_path / "x.strm").write_bytes(damaged)
    assert main(["segment", "inspect", str(tmp_path / "x.strm")]) == 1
    text = capsys.readouterr().out
    assert "FAIL block 1" in text
    assert f"segment block at byte {place.start}" in text
    assert "Damaged." in text


def test_inspect_of_version_1(capsys: Captured) -> None:
    assert main(["segment", "inspect", str(GOLDEN / "v1.strm"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["record_count"], found["base_offset"]) == (1, 1, 100)
    assert main(["segment", "inspect", str(GOLDEN / "v1.strm")]) == 0
    assert "STRM v1" in capsys.readouterr().out


def test_version_1_comes_in_and_goes_out(tmp_path: Path, capsys: Captured) -> None:
    records = [Record(n * 3, 1000 + n, b"k%d" % n, b"v" * 500) for n in range(2000)]
    old, new, back = tmp_path / "old.strm", tmp_path / "new.strm", tmp_path / "back.strm"
    old.write_bytes(export_v1(records, compression="zstd").data)
    assert main(["segment", "import-v1", str(old), str(new), "--topic-id", "t", "--partition", "1"]) == 0
    assert "2000 records, offsets 0 to 5997" in capsys.readouterr().out
    assert records_in(new) == records
    assert main(["segment", "inspect", str(new)]) == 0
    assert main(["segment", "export-v1", str(new), str(back), "--compression", "none"]) == 0
    assert "lost or blurred: none" in capsys.readouterr().out
    assert import_v1(back.read_bytes()) == records


def test_export_refuses_what_it_cannot_keep_unless_flags_allow_it(tmp_path: Path, capsys: Captured) -> None:
    source, target = tmp_path / "a.strm", tmp_path / "b.strm"
    null = encode([Record(3, 5, None, None)], base_offset=3)
    marker = encode([Record(4, 5, b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=4, control=True, producer_id=1)
    source.write_bytes(a_segment([a_batch(0), null, marker]))
    command = ["segment", "export-v1", str(source), str(target)]
    assert main(command) == 2
    assert "3 with headers" in capsys.readouterr().err
    assert main([*command, "--drop-headers"]) == 2
    assert "1 with null values" in capsys.readouterr().err
    assert not target.exists()
    assert main([*command, "--drop-headers", "--blur-nulls"]) == 0
    said = capsys.readouterr().out
    assert "4 records" in said
    assert "3 with headers, 1 with null values; left out: 1 transaction markers" in said
    assert [record.offset for record in import_v1(target.read_bytes())] == [0, 1, 2, 3]


def test_export_of_a_shared_object_asks_which_segment(tmp_path: Path, capsys: Captured) -> None:
    command = ["segment", "export-v1", str(GOLDEN / "v2-shared.strm"), str(tmp_path / "out.strm")]
    assert main(command) == 2
    assert "0 to 2" in capsys.readouterr().err
    assert main([*command, "--segment", "3"]) == 2
    assert main([*command, "--segment", "1"]) == 0
    assert import_v1((tmp_path / "out.strm").read_bytes())[0].value == b"partition 1 " * 20


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["inspect", "/nowhere/x.strm"], 2, "No such file"),
        (["inspect", "ftp://host/x.strm"], 2, "s3://bucket"),
        (["inspect", __file__], 2, "begins with STRM"),
        (["import-v1", str(GOLDEN / "v2-stored.strm"), "out", "--topic-id", "t", "--partition", "0"], 2, "version 1"),
        (["import-v1", str(GOLDEN / "v1.strm"), __file__, "--topic-id", "t", "--partition", "0"], 2, "a new file"),
        (["import-v1", str(GOLDEN / "v1.strm"), "out", "--topic-id", "a/b", "--partition", "0"], 2, "topic id"),
        (["export-v1", str(GOLDEN / "v1.strm"), "out"], 2, "import-v1"),
    ],
)
def test_a_wrong_call_says_what_is_allowed(argv: list[str], code: int, says: str, capsys: Captured) -> None:
    assert main(["segment", *argv]) == code
    assert says in capsys.readouterr().err
