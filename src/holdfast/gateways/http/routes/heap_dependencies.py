"""Shared by the routes of heaps: what they are injected with."""

from dataclasses import dataclass
from typing import Final

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from holdfast.gateways.heap.calls import HeapCalls
from holdfast.gateways.http.log.waits import Waits

HEAP_PATH: Final = "/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapRoutes:
    """Heaps as the routes use them."""

    calls: HeapCalls
    waits: Waits


HeapsDependency = NamedDependency[SkipValidation[HeapRoutes]]
