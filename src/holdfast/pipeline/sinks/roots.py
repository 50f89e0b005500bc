"""Below which folders and prefixes the sinks of this worker may write.

The one rule: names are compared after `..`, links and encodings are resolved, and part by part: `/data/lake2` is not below
`/data/lake`.
"""

import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.pipeline.model.definition import DeltaConfig, IcebergConfig, ParquetConfig, SinkConfig
from holdfast.pipeline.sinks.files import parse_location
from holdfast.vocabulary.errors import InvalidError


def parse_roots(text: str) -> tuple[str, ...]:
    """Paths and URLs separated by commas. Relative paths would mean another folder in every process, so they are refused."""
    roots = tuple(each.strip() for each in text.split(",") if each.strip())
    for root in roots:
        location = parse_location(root)
        if location.local and not Path(location.url).is_absolute():
            raise InvalidError("sink_roots", root, "absolute paths or URLs, separated by commas")
    return roots


def check_sink_roots(sink: SinkConfig, roots: Sequence[str]) -> None:
    """`InvalidError` for a sink that writes elsewhere. Without roots everything is allowed."""
    if roots:
        for name, url in _locations(sink):
            check_below_roots(name, url, roots)


def check_below_roots(name: str, url: str, roots: Sequence[str]) -> None:
    """The same for one path or URL."""
    if roots and not any(_is_below(url, root) for root in roots):
        shown = parse_location(url).url  # without options, which may hold secrets
        raise InvalidError(
            name, shown, f"below worker.sink_roots: {', '.join(parse_location(each).url for each in roots)}"
        )


def _locations(sink: SinkConfig) -> Iterator[tuple[str, str]]:
    match sink:
        case DeltaConfig() | ParquetConfig():
            yield "sink.url", sink.url
        case IcebergConfig():
            yield "sink.warehouse", sink.warehouse
            catalog = urlsplit(sink.catalog_uri)
            if catalog.scheme.startswith("sqlite"):
                yield "sink.catalogUri", "/" + unquote(catalog.path).lstrip("/")


def _is_below(url: str, root: str) -> bool:
    here, allowed = parse_location(url), parse_location(root)
    if here.local or allowed.local:
        both_local = here.local and allowed.local
        return both_local and Path(here.url).resolve().is_relative_to(Path(allowed.url).resolve())
    ours, theirs = urlsplit(here.url), urlsplit(allowed.url)
    if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
        return False
    path, prefix = _normal(ours.path), _normal(theirs.path)
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


def _normal(path: str) -> str:
    return posixpath.normpath("/" + unquote(path).lstrip("/"))
