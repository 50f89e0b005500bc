"""Settings of traces."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.redaction import redacted
from holdfast.vocabulary.settings import check_at_least, check_between

_SCHEME = "otlp:"
_PATH = "/v1/traces"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """`export`: `off`, or where spans are sent: `otlp:http://collector:4318` (OTLP over HTTP, protobuf).

    `ratio`: the share of requests without a parent that begin a trace; with one, the parent decides. `queue_max`: spans that wait
    to be sent; beyond it the oldest are dropped. `batch_max`, `interval_ms`: how many are sent at once, and how often.
    `timeout_ms`: of one request to the collector, with its retries. `stop_ms`: how long a stop waits for it.
    """

    export: str = "off"
    ratio: float = 0.01
    queue_max: int = 4_096
    batch_max: int = 512
    interval_ms: int = 1_000
    timeout_ms: int = 5_000
    stop_ms: int = 1_000

    def __post_init__(self) -> None:
        check_between("ratio", self.ratio, 0, 1)
        check_at_least("queue_max", self.queue_max, 1)
        check_between("batch_max", self.batch_max, 1, self.queue_max)
        check_at_least("interval_ms", self.interval_ms, 1)
        check_at_least("timeout_ms", self.timeout_ms, 1)
        check_at_least("stop_ms", self.stop_ms, 0)
        if self.is_on:
            self.endpoint()

    @property
    def is_on(self) -> bool:
        """Whether there are traces at all."""
        return self.export not in ("", "off")

    def endpoint(self) -> str:
        """The URL that spans are posted to."""
        url = self.export.removeprefix(_SCHEME)
        parts = urlsplit(url)
        if not self.export.startswith(_SCHEME) or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidError(
                "export", redacted(self.export), "off, or a collector such as otlp:http://127.0.0.1:4318"
            )
        return url if parts.path not in ("", "/") else url.rstrip("/") + _PATH
