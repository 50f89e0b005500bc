"""Metrics of object storage by operation and cause, and of the read cache."""

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counter, gauge, histogram
from holdfast.objects.cache import CachingObjects
from holdfast.objects.counters import ObjectCounters

_REQUEST_METRICS: Final = {
    "calls": ("holdfast_objects_requests_total", "Requests to object storage."),
    "errors": ("holdfast_objects_errors_total", "Requests to object storage that failed."),
    "throttled": ("holdfast_objects_throttled_total", "Requests throttled by object storage."),
    "retries": ("holdfast_objects_retries_total", "Retried requests."),
    "bytes_read": ("holdfast_objects_read_bytes_total", "Bytes read from object storage."),
    "bytes_written": ("holdfast_objects_written_bytes_total", "Bytes written to object storage."),
    "cost_usd": ("holdfast_objects_cost_usd_total", "Estimated cost of the requests, in US dollars."),
}


def object_metrics(counters: ObjectCounters, cache: CachingObjects) -> MetricSource:
    """Metrics of object storage."""

    async def families() -> Iterable[MetricFamily]:
        return [*_requests(counters), *_cache(cache)]

    return families


def _requests(counters: ObjectCounters) -> Iterator[MetricFamily]:
    totals_by_cause = [
        ({"operation": operation, "cause": cause}, totals) for operation, cause, totals in counters.each()
    ]
    for name, (family, help_text) in _REQUEST_METRICS.items():
        yield MetricFamily(
            family, "counter", help_text, [(labels, float(getattr(totals, name))) for labels, totals in totals_by_cause]
        )
    yield histogram(
        "holdfast_objects_request_seconds",
        "Duration of requests to object storage, but for listings.",
        [({"operation": operation}, each) for operation, each in sorted(counters.latencies.items())],
    )
    seconds = [(labels, totals.took_ms / 1000) for labels, totals in totals_by_cause]
    yield MetricFamily("holdfast_objects_seconds_total", "counter", "Time spent waiting for object storage.", seconds)


def _cache(cache: CachingObjects) -> Iterator[MetricFamily]:
    totals = cache.totals
    yield counter("holdfast_cache_hits_total", "Reads answered from the cache.", totals.ram_hits, tier="ram")
    yield counter("holdfast_cache_hits_total", "Reads answered from the cache.", totals.disk_hits, tier="disk")
    yield counter("holdfast_cache_misses_total", "Reads that went to object storage.", totals.misses)
    yield counter(
        "holdfast_cache_saved_bytes_total", "Bytes read from the cache instead of object storage.", totals.bytes_saved
    )
    yield gauge("holdfast_cache_ram_bytes", "Memory used by the cache.", cache.ram_bytes_held)
