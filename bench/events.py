"""Batches of events as applications send them: JSON of about 200 bytes, which LZ4 packs to a third or so."""

import json
import random
from typing import Final

from holdfast.log.batches import Record, encode

_PAGES: Final = ("/", "/products", "/cart", "/checkout", "/account/orders", "/search?q=")
_NOW_MS: Final = 1_700_000_000_000


def event(rng: random.Random, at: int) -> bytes:
    """One event."""
    return json.dumps(
        {
            "event_id": f"{rng.getrandbits(128):032x}",
            "user": rng.randrange(1_000_000),
            "at": _NOW_MS + at,
            "page": rng.choice(_PAGES),
            "took_ms": rng.randrange(2_000),
            "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "ok": rng.random() > 0.02,
        }
    ).encode()


def event_batches(total_bytes: int, batch_bytes: int, *, seed: int = 7) -> list[bytes]:
    """Batches of about `batch_bytes` each, with offsets that follow each other."""
    rng = random.Random(seed)
    count = max(1, batch_bytes // (len(event(rng, 0)) + 20))
    batches: list[bytes] = []
    base = 0
    while total_bytes > 0:
        records = [Record(base + at, _NOW_MS + at, None, event(rng, at)) for at in range(count)]
        batches.append(encode(records, base_offset=base))
        total_bytes -= len(batches[-1])
        base += count
    return batches
