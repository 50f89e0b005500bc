"""`holdfast segment …`: inspect segments, and convert them from and to STRM v1."""

import argparse
import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from rich.markup import escape

from holdfast.cli.arguments import add_family
from holdfast.cli.output import FAILED, OK, console, print_json, print_table
from holdfast.contracts.objects import Missing
from holdfast.log.segments.conversion import from_v1, segment_of, to_v1
from holdfast.log.segments.inspection import IntegrityCheck, ObjectReport, SegmentReport, inspect_object
from holdfast.log.segments.settings import COMPRESSIONS
from holdfast.log.segments.v1 import COMPRESSIONS_V1, header_v1, import_v1, is_v1
from holdfast.objects.urls import open_objects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom

SOURCES = """\
FILE|URL is a local file, or an object:
  data/objects/segments/…/….strm
  s3://bucket/prefix/segments/…/….strm?region=eu-central-1
  gs://bucket/…   az://container/…   file:///path/…
"""
_BLOCK_COLUMNS = (
    "number",
    "at",
    "codec",
    "stored_bytes",
    "raw_bytes",
    "batches",
    "records",
    "first_offset",
    "end_offset",
    "max_timestamp_ms",
    "crc",
)
_PRODUCER_COLUMNS = ("producer_id", "producer_epoch", "last_timestamp_ms", "batches", "transaction_offset")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "segment", "inspect segments, convert them from and to STRM v1")
    inspect = _action(actions, "inspect", "show header, blocks, index and footer, and verify every checksum")
    inspect.add_argument("source", metavar="FILE|URL", help="a segment, or an object that several partitions share")
    inspect.add_argument("--json", action="store_true", help="one JSON object per segment")
    inspect.set_defaults(run=run_inspect)
    export = _action(actions, "export-v1", "write the records of a segment as STRM v1")
    export.add_argument("source", metavar="FILE|URL", help="a segment of version 2")
    export.add_argument("target", metavar="OUT", type=Path, help="the file to write; it must not exist yet")
    export.add_argument("--segment", type=int, metavar="N", help="which one of a shared object, from 0")
    export.add_argument("--compression", choices=COMPRESSIONS_V1, default="lz4", help="default: lz4")
    export.add_argument("--drop-headers", action="store_true", help="accept that headers are lost")
    export.add_argument(
        "--blur-nulls",
        action="store_true",
        help="accept that a null value becomes empty, an empty key null, and no timestamp 0",
    )
    export.add_argument("--json", action="store_true", help="the report as one JSON object")
    export.set_defaults(run=run_export)
    take = _action(actions, "import-v1", "write the records of an STRM v1 file as a segment of version 2")
    take.add_argument("source", metavar="FILE|URL", help="a segment of version 1")
    take.add_argument("target", metavar="OUT", type=Path, help="the file to write; it must not exist yet")
    take.add_argument("--topic-id", required=True, help="the topic's id")
    take.add_argument("--partition", type=int, required=True, metavar="N", help="the partition's number")
    take.add_argument("--epoch", type=int, default=0, help="leader epoch of its batches; default: 0")
    take.add_argument("--compression", choices=COMPRESSIONS, default="lz4", help="default: lz4")
    take.add_argument("--json", action="store_true", help="the report as one JSON object")
    take.set_defaults(run=run_import)


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, does: str
) -> argparse.ArgumentParser:
    formatted = argparse.RawDescriptionHelpFormatter
    return actions.add_parser(name, help=does, description=does, epilog=SOURCES, formatter_class=formatted)


async def run_inspect(args: argparse.Namespace) -> int:
    """Print what the object holds; fail if anything in it is damaged."""
    data = await _read(args.source)
    if is_v1(data):
        return _show_v1(data, as_json=args.json)
    report = inspect_object(data)
    for segment in report.segments:
        if args.json:
            print_json(_segment_json(segment))
        else:
            _show_segment(segment)
    if args.json:
        print_json({"ok": report.ok, "directory": _directory_json(report), "checks": _checks_json(report.checks)})
    else:
        _show_object(report)
    return OK if report.ok else FAILED


async def run_export(args: argparse.Namespace) -> int:
    """Write a segment as STRM v1, and say what could not be kept."""
    segment = segment_of(await _read(args.source), args.segment)
    done = to_v1(segment, compression=args.compression, drop_headers=args.drop_headers, blur_nulls=args.blur_nulls)
    await _write(args.target, done.data)
    if args.json:
        report = {"records": done.record_count, "bytes": len(done.data), "markers": done.markers}
        print_json({**report, "losses": _fields(done.losses)})
        return OK
    line = f"{done.record_count} records, {len(done.data)} bytes; lost or blurred: {done.losses}"
    console().print(line + (f"; left out: {done.markers} transaction markers" if done.markers else ""), soft_wrap=True)
    return OK


async def run_import(args: argparse.Namespace) -> int:
    """Write an STRM v1 file as a segment of version 2."""
    data = await _read(args.source)
    built = from_v1(
        data, topic_id=args.topic_id, partition=args.partition, epoch=args.epoch, compression=args.compression
    )
    await _write(args.target, b"".join(built.parts))
    meta = built.meta
    if args.json:
        print_json(
            {
                "records": meta.record_count,
                "bytes": meta.bytes,
                "base_offset": meta.base_offset,
                "end_offset": meta.end_offset,
            }
        )
        return OK
    console().print(
        f"{meta.record_count} records, offsets {meta.base_offset} to {meta.end_offset - 1}, {meta.bytes} bytes",
        soft_wrap=True,
    )
    return OK


async def _read(source: str) -> bytes:
    """All bytes of a file or an object."""
    parts = urlsplit(source)
    if "://" not in source or parts.scheme == "file":
        path = Path(unquote(parts.path) if "://" in source else source)
        try:
            return await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            raise InvalidError("file", source, f"a readable file ({error.strerror})") from None
    folder, _, key = parts.path.rpartition("/")
    async with open_objects(parts._replace(path=folder).geturl(), clock=RealClock(), random=SystemRandom()) as objects:
        found = await objects.get(key)
    if isinstance(found, Missing):
        raise InvalidError("object", key, f"an existing object in {parts.scheme}://{parts.hostname}{folder}")
    return bytes(found)


async def _write(target: Path, data: bytes) -> None:
    try:
        await asyncio.to_thread(_write_new, target, data)
    except OSError as error:
        raise InvalidError("target", str(target), f"a new file in an existing folder ({error.strerror})") from None


def _write_new(target: Path, data: bytes) -> None:
    with target.open("xb") as file:
        try:
            file.write(data)
        except OSError:
            target.unlink()  # half a segment is worse than none
            raise


def _show_v1(data: bytes, *, as_json: bool) -> int:
    shown = header_v1(data)._asdict() | {"version": 1, "bytes": len(data)}
    records = import_v1(data)  # raises when the CRC or the contents are wrong
    if as_json:
        print_json(shown | {"ok": True})
    else:
        console().print("STRM v1: " + _line(shown), soft_wrap=True)
        console().print(f"[green]ok  [/] CRC-32, {len(records)} records")
    return OK


def _show_segment(report: SegmentReport) -> None:
    out = console()
    out.print(f"segment: bytes {report.start} to {report.end}")
    for name, fields in (("header", report.header), ("footer", report.footer)):
        if fields is not None:
            out.print(f"{name}: " + escape(_line(fields._asdict())), soft_wrap=True)
    if report.meta is not None:
        epochs = ", ".join(f"{epoch} from offset {start}" for epoch, start in report.meta.epochs)
        out.print(f"index: topic id {report.meta.topic_id}, epochs {epochs or 'none'}", soft_wrap=True)
    print_table("blocks", map(_fields, report.blocks), _BLOCK_COLUMNS)
    since = report.producers.since
    title = "producers" if since < 0 else f"producers changed since offset {since}"
    print_table(title, _producers(report), _PRODUCER_COLUMNS)
    if report.producers.gone:
        out.print("producers forgotten: " + ", ".join(map(str, report.producers.gone)), soft_wrap=True)
    _show_checks(report.checks)


def _show_object(report: ObjectReport) -> None:
    if report.directory is not None:
        columns = ("start", "end", "topic_id", "partition", "base_offset", "end_offset")
        print_table("directory", (entry._asdict() for entry in report.directory), columns)
    _show_checks(report.checks)
    console().print("All checksums are correct." if report.ok else "[red]Damaged.[/]")


def _show_checks(checks: list[IntegrityCheck]) -> None:
    for check in checks:
        mark = "[green]ok  [/]" if check.ok else "[red]FAIL[/]"
        console().print(f"{mark} {check.what:14} {escape(check.found)}", soft_wrap=True)


def _segment_json(report: SegmentReport) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "start": report.start,
        "end": report.end,
        "header": report.header._asdict() if report.header is not None else None,
        "blocks": [_fields(block) for block in report.blocks],
        "epochs": [epoch._asdict() for epoch in report.meta.epochs] if report.meta is not None else None,
        "producers": _producers(report),
        "producers_since": report.producers.since,
        "producers_gone": list(report.producers.gone),
        "footer": report.footer._asdict() if report.footer is not None else None,
        "checks": _checks_json(report.checks),
    }


def _directory_json(report: ObjectReport) -> list[dict[str, Any]] | None:
    return [entry._asdict() for entry in report.directory] if report.directory is not None else None


def _checks_json(checks: list[IntegrityCheck]) -> list[dict[str, Any]]:
    return [_fields(check) for check in checks]


def _producers(report: SegmentReport) -> list[dict[str, Any]]:
    return [_fields(producer._asdict()) for producer in report.producers.producers]


def _fields(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def _line(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items())
