"""Every engine's server, started once per worker when it is first wanted, and a fresh namespace for each test.

Everything that needs Spark is marked so and runs in one of three workers: pipelines that share the session of the fixture `spark`,
other tests that share it, and tests whose processes have Sparks of their own. So does, in one of its own, everything on one engine,
and everything that uses a fixture of its module: what they start is started once. The longest begin first. What needs a server or a
process of its own is marked `server`: `make test-quick` leaves it out.
"""

import gc
import re
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings
from tests.support.open_transports import close_with_loop
from tests.support.spark_session import spark  # noqa: F401 (a fixture for every folder)
from tests.support.store_engines import STORE_ENGINES, NewStoreHarness, serving
from tests.support.zookeeper import clickhouse_pair

from holdfast.contracts.store import Store
from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server
from holdfast.testing.harness import StoreHarness

pytest.register_assert_rewrite("holdfast.testing.store_contract")

Serve = Callable[[str], NewStoreHarness]

TESTS = Path(__file__).parent
SERVER_PATHS = (
    *("app/", "bench/", "chaos/test_chaos", "clients/", "clickhouse/embedded/", "fuzz/", "gateways/", "heaps/"),
    *("observability/", "sdk/", "spark/clickhouse/", "testing/", "upgrade/"),
    *("scenarios/test_scenarios", "log/crash/", "objects/", "pipeline/kills/", "pipeline/sinks/"),
    *("stores/test_postgres", "stores/test_redis", "stores/test_etcd", "stores/test_sqlite_processes"),
)
SERVER_FIXTURES = {"broker", "clickhouse", "kafka", "own_broker", "spark", "start"}
SERVE_FIXTURES = {"serve", "serve_objects"}  # which start an engine's server, once per worker
ENGINES_WITH_SERVERS = {"postgres", "etcd", "redis", "moto", "seaweedfs"}
QUICK_ENGINE = "memory"
# What stands on a store's contract, which every engine keeps, runs on these in `make test-long` alone.
ABOVE_THE_CONTRACT = ("registry/", "kernel/", "groups/", "pipeline/")
LONG_ENGINES = {"etcd", "redis"}
# Helpers that start processes: a test module that imports from one needs a server.
SERVER_HELPERS = {
    "subprocess",
    "concurrent.futures.process",
    "holdfast.testing.server_process",
    "holdfast.testing.clickhouse",
} | {
    f"tests.support.{name}"
    for name in (
        *(
            "apache_kafka",
            "broker",
            "driver_process",
            "etcd_nodes",
            "server_process",
            "spark_servers",
            "wal_process",
            "replication.host_process",
            "worker_process",
        ),
        *("fake_driver", "in_process_driver", "driver_cluster"),
    )
}

_SERVER_IMPORT = re.compile(rf"^(?:from|import) (?:{'|'.join(map(re.escape, sorted(SERVER_HELPERS)))})\b", re.MULTILINE)

_databases = count(1)

close_with_loop()

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in a job in the background, whose children would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no defect: what takes long is bounded by the time-out of the test.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
settings.register_profile("quick", settings.get_profile("holdfast"), max_examples=10)  # `make test-quick`
settings.register_profile("long", settings.get_profile("holdfast"), max_examples=200)  # `make test-long`
settings.load_profile("holdfast")


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    running: dict[str, NewStoreHarness] = {}
    with ExitStack() as started:

        def serve(engine: str) -> NewStoreHarness:
            if engine not in running:
                running[engine] = started.enter_context(serving(engine, tmp_path_factory.mktemp(engine)))
            return running[engine]

        yield serve


@pytest.fixture(params=STORE_ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def harness(engine: str, serve: Serve) -> AsyncIterator[StoreHarness]:
    try:
        new = serve(engine)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("holdfast"):
            raise
        pytest.skip(f"the server or driver of {engine} is not installed: no module {missing.name}")
    async with new() as fresh:
        yield fresh


@pytest_asyncio.fixture
async def store(harness: StoreHarness) -> AsyncIterator[Store]:
    async with harness.client() as client:
        yield client


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    """One embedded ClickHouse per worker. Who kills or pauses it restarts or resumes it."""
    pytest.importorskip("chdb", reason="chdb is not installed")
    with clickhouse_server(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse_replicas(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ClickHouseServer, ClickHouseServer]]:
    """Two of them with one Keeper, for modules of the group `keeper`."""
    pytest.importorskip("chdb")
    pytest.importorskip("pyspark")
    with clickhouse_pair(tmp_path_factory.mktemp("keeper")) as servers:
        yield servers


@pytest.fixture
def clickhouse_database(clickhouse: ClickHouseServer) -> Iterator[str]:
    """A database of the test's own in it."""
    name = f"test_{next(_databases)}"
    clickhouse.query(f"CREATE DATABASE {name}")
    yield name
    clickhouse.query(f"DROP DATABASE {name} SYNC")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what `make test-quick` leaves out, where its path or its imports show that."""
    quick = "not server" in str(config.getoption("markexpr"))
    return True if quick and (_has_server_path(collection_path) or _imports_server(collection_path)) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives as long as the run: the garbage collector need not look at it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before xdist, and `-m`, look at the marks; after the shuffle
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    for item in items:
        if _needs_spark(item):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("xdist_group") is None and (group := _spark_group(item) or _shared_server(item)):
            item.add_marker(pytest.mark.xdist_group(group))
        if _needs_server(item):
            item.add_marker(pytest.mark.server)
        if _repeats_the_contract(item):
            item.add_marker(pytest.mark.long)
        if config.getoption("loadgroup", False):
            _name_group(item)
    yield
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """What takes longest begins first, so that no worker is left alone with it at the end."""
    return 0 if item.get_closest_marker("spark") else 1 if item.get_closest_marker("server") else 2


def _name_group(item: pytest.Item) -> None:
    """Put the group behind the item's id, where `--dist loadgroup` looks for it.

    It is xdist's work, but xdist 3.8 writes it into a field that pytest has no longer since 9.2.
    """
    groups = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
    if groups and hasattr(item, "_id"):
        item._id = type(item._id).parse(f"{item.nodeid}@{'_'.join(sorted(groups))}")


def _needs_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark") is not None


def _spark_group(item: pytest.Item) -> str:
    if item.get_closest_marker("spark") is None:
        return ""
    if "spark" not in getattr(item, "fixturenames", ()):
        return "spark-processes"
    return "spark-pipelines" if item.path.is_relative_to(TESTS / "pipeline") else "spark"


def _shared_server(item: pytest.Item) -> str:
    """What the item shares with others, and each worker would start for itself: an engine's server, or a fixture of its module."""
    fixtures = set(getattr(item, "fixturenames", ()))
    engine = getattr(getattr(item, "callspec", None), "params", {}).get("engine", "")
    if engine in ENGINES_WITH_SERVERS and fixtures & SERVE_FIXTURES:
        return str(engine)
    defined = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    if any(each[-1].baseid.endswith(".py") and each[-1].scope in ("module", "session") for each in defined.values()):
        return item.path.relative_to(TESTS).as_posix()
    return "clickhouse" if "clickhouse" in fixtures else ""


def _repeats_the_contract(item: pytest.Item) -> bool:
    engine = getattr(getattr(item, "callspec", None), "params", {}).get("engine")
    return engine in LONG_ENGINES and item.path.relative_to(TESTS).as_posix().startswith(ABOVE_THE_CONTRACT)


def _needs_server(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    params = getattr(getattr(item, "callspec", None), "params", {})
    if "engine" in fixtures and params.get("engine", QUICK_ENGINE) != QUICK_ENGINE:
        return True
    if item.get_closest_marker("spark") is not None or fixtures & SERVER_FIXTURES:
        return True
    return _module_needs_server(item.path, getattr(item, "module", None))


@cache
def _module_needs_server(path: Path, module: ModuleType | None) -> bool:
    if _has_server_path(path) or _imports_server(path):
        return True
    return any(
        getattr(each, "__module__", None) in SERVER_HELPERS or getattr(each, "__name__", None) in SERVER_HELPERS
        for each in vars(module or object).values()
    )


def _has_server_path(path: Path) -> bool:
    """Whether everything in this file or folder needs a server."""
    if not path.is_relative_to(TESTS):
        return False
    return f"{path.relative_to(TESTS).as_posix()}{'/' if path.is_dir() else ''}".startswith(SERVER_PATHS)


def _imports_server(path: Path) -> bool:
    """Whether a test module imports from a helper that starts processes."""
    return path.name.startswith("test_") and _SERVER_IMPORT.search(path.read_text()) is not None
