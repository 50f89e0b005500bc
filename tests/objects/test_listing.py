"""Listings are streamed: a bucket of millions of objects takes a page of memory."""

import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.scripted_http import RecordedRequest, ScriptedAnswer, scripted_server

from holdfast.objects import folder_listing
from holdfast.objects.folder import FolderObjects, FolderSettings
from holdfast.objects.urls import open_objects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import KIB

PAGE = 1_000


class Bucket:
    """An S3 server with these keys, in this order."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = list(keys)
        self.pages = 0

    def __call__(self, request: RecordedRequest) -> ScriptedAnswer:
        self.pages += 1
        start = int(parse_qs(urlsplit(request.path).query).get("continuation-token", ["0"])[0])
        some = self._keys[start : start + PAGE]
        contents = "".join(
            f"<Contents><Key>pre/{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"1"</ETag><Size>1</Size></Contents>'
            for key in some
        )
        more = start + PAGE < len(self._keys)
        token = f"<NextContinuationToken>{start + PAGE}</NextContinuationToken>" if more else ""
        body = (
            f'<?xml version="1.0"?><ListBucketResult><Name>bucket</Name><KeyCount>{len(some)}</KeyCount>'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{contents}</ListBucketResult>"
        )
        return ScriptedAnswer("200 OK", body.encode())


def url(port: int) -> str:
    return f"s3://bucket/pre?endpoint=http://127.0.0.1:{port}&region=r&access_key_id=a&secret_access_key=s&check=0"


async def test_the_first_key_of_a_bucket_is_there_before_most_of_it_was_asked_for() -> None:
    bucket = Bucket(f"segments/{n:08d}" for n in range(40 * PAGE))
    async with (
        scripted_server(bucket) as server,
        open_objects(url(server.port), clock=RealClock(), random=SystemRandom()) as objects,
    ):
        listing = objects.list("segments/")
        assert (await anext(listing)).key == "segments/00000000"
        assert bucket.pages <= 4
        async for info in listing:
            last = info.key
        assert (last, bucket.pages) == ("segments/00039999", 40)


async def test_a_server_that_lists_in_another_order_is_sorted_for_and_nothing_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    in_order = [f"a/{n:05d}" for n in range(2 * PAGE)]
    bucket = Bucket([*in_order[PAGE:], *in_order[:PAGE]])
    async with (
        scripted_server(bucket) as server,
        open_objects(url(server.port), clock=RealClock(), random=SystemRandom()) as objects,
    ):
        first = [info.key async for info in objects.list("a/")]
        assert sorted(first) == in_order
        assert [info.key async for info in objects.list("a/")] == in_order
        assert [info.key async for info in objects.list("a/", after="a/01998")] == ["a/01999"]
    assert sum("does not list objects in key order: listings are held in RAM" in each for each in caplog.messages) == 1


async def test_a_large_folder_is_listed_page_by_page_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_listing, "PAGE", 100)
    (tmp_path / "shared").mkdir()
    names = [f"{n * 7919 % 10_007:060d}.strm" for n in range(1_500)]
    for name in names:
        (tmp_path / "shared" / name).touch()
    folders = [f"{name[:30]}-{name[30:]}/inside" for name in names[:5]]
    for name in folders:
        (tmp_path / "shared" / name).parent.mkdir()
        (tmp_path / "shared" / name).touch()
    expected = sorted(f"shared/{name}" for name in (*names, *folders))
    opened = FolderObjects.open(tmp_path, clock=RealClock(), random=SystemRandom(), settings=FolderSettings())
    async with opened as objects:
        assert [info.key async for info in objects.list("shared/")] == expected
        middle = expected[734]
        assert [info.key async for info in objects.list("shared/", after=middle)] == expected[735:]
        peaks = []
        for _ in range(3):  # other threads allocate, too: the least is what the listing takes
            tracemalloc.start()
            try:
                count = 0
                async for _ in objects.list("shared/"):
                    count += 1
                peaks.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
    assert count == len(expected)
    assert min(peaks) < 250 * KIB
