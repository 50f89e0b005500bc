"""For authors of engines and for tests of code that uses Holdfast: contract suites, harnesses, fault injection, fake time.

The suites need pytest and pytest-asyncio. Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.testing import objects_contract, store_contract
    from holdfast.testing.fault_proxy import FaultProxy
    from holdfast.testing.faulty_objects import FaultyObjects
    from holdfast.testing.faulty_store import FaultyStore
    from holdfast.testing.harness import ObjectsHarness, StoreHarness
    from holdfast.testing.server_harness import ServerHarness
    from holdfast.testing.server_process import ServerProcess, free_port
    from holdfast.vocabulary.clock import FakeClock
    from holdfast.vocabulary.random import SeededRandom

__all__ = [
    "FakeClock",
    "FaultProxy",
    "FaultyObjects",
    "FaultyStore",
    "ObjectsHarness",
    "SeededRandom",
    "ServerHarness",
    "ServerProcess",
    "StoreHarness",
    "free_port",
    "objects_contract",
    "store_contract",
]

_MODULES: Final = {
    "FakeClock": "holdfast.vocabulary.clock",
    "FaultProxy": "holdfast.testing.fault_proxy",
    "FaultyObjects": "holdfast.testing.faulty_objects",
    "FaultyStore": "holdfast.testing.faulty_store",
    "ObjectsHarness": "holdfast.testing.harness",
    "SeededRandom": "holdfast.vocabulary.random",
    "ServerHarness": "holdfast.testing.server_harness",
    "ServerProcess": "holdfast.testing.server_process",
    "StoreHarness": "holdfast.testing.harness",
    "free_port": "holdfast.testing.server_process",
}


def __getattr__(name: str) -> object:
    if name in ("objects_contract", "store_contract"):
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found  # the next time it is an ordinary attribute
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
