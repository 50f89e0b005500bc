"""More clients × every mechanism × TLS, and certificates: kcat, kafkajs, franz-go and Spark's connector log in, write and read.

Minutes in all, for programs that are on few machines: in the long form. docs/security.md has the table of what ran.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker import CHOICE
from tests.support.clients.kafkajs_scenarios import SCRIPTS, installed, node_environment
from tests.support.secured_listener import LOGINS, OAUTH, PASSWORD, USER, Listener, starting_listeners
from tests.support.spark_kafka import spark_kafka_jars

from holdfast.spark.settings import SparkSettings
from holdfast.spark.spark_session import session
from holdfast.vocabulary.errors import UnavailableError

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("secured"),
    pytest.mark.skipif(CHOICE != "holdfast", reason="users and ACLs are made by Holdfast's own means"),
]
RUN_TIMEOUT_S, BUILD_TIMEOUT_S = 90, 250
FRANZ_GO = "github.com/twmb/franz-go"
FRANZ_GO_VERSION = "v1.22.2"
# kcat has no way to be given a token; an OIDC endpoint only where it was built with one.
KCAT_LOGINS = [each for each in LOGINS if each[1] != OAUTH]


@pytest.fixture(scope="session")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Listener]]:
    with starting_listeners(tmp_path_factory.mktemp) as start:
        yield start


@pytest.fixture(params=LOGINS, ids="-".join)
def login(request: pytest.FixtureRequest, listener: Callable[..., Listener]) -> tuple[Listener, str]:
    protocol, mechanism = request.param
    return listener(protocol), mechanism


def told(broker: Listener, mechanism: str, topic: str) -> str:
    """Settings of the programs in JavaScript and Go."""
    settings = {"bootstrap": broker.bootstrap, "topic": topic, "mechanism": mechanism}
    settings |= {"user": USER, "password": PASSWORD, "token": broker.issuer.token(USER)}
    if broker.protocol.endswith("SSL"):
        settings |= {"ca": str(broker.server[0])}
    if broker.protocol == "SSL":
        settings |= {"cert": str(broker.client[0]), "key": str(broker.client[1])}
    return json.dumps(settings)


def ran(argv: list[str], **more: Any) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, **more)
    assert done.returncode == 0, done.stderr[-3_000:]
    return str(done.stdout)


def librdkafka_of(kcat: str) -> tuple[int, ...]:
    """The version it was built with."""
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", ran([kcat, "-V"]))
    assert found is not None
    return tuple(map(int, found.groups()))


@pytest.mark.parametrize("login", KCAT_LOGINS, indirect=True, ids="-".join)
def test_kcat(login: tuple[Listener, str]) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed")
    broker, mechanism = login
    topic = broker.broker.unique("mine-kcat")
    given = broker.librdkafka(mechanism)
    settings = [part for name, value in given.items() for part in ("-X", f"{name}={value}")]
    if mechanism.startswith("SCRAM") and librdkafka_of(kcat) < (2, 6, 1):
        # It repeats its own nonce in the last message, which RFC 5802 and Apache Kafka 4 do not accept either.
        argv = [kcat, *settings, "-P", "-t", topic]
        refused = subprocess.run(argv, input="x\n", capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
        assert "invalid credentials" in refused.stderr
        return
    ran([kcat, *settings, "-P", "-t", topic], input="x\n")
    assert ran([kcat, *settings, "-C", "-q", "-t", topic, "-c", "1"]) == "x\n"


def test_kafkajs(login: tuple[Listener, str]) -> None:
    broker, mechanism = login
    modules = installed()
    argv = ["node", str(SCRIPTS / "login.js"), told(broker, mechanism, broker.broker.unique("mine-js"))]
    assert ran(argv, env=node_environment(modules)) == "x"


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    folder = tmp_path_factory.mktemp("franz-go")
    shutil.copy(SCRIPTS.parent / "franz_go" / "main.go", folder)
    (folder / "go.mod").write_text("module login\n\ngo 1.25\n")
    for argv in ([go, "get", f"{FRANZ_GO}@{FRANZ_GO_VERSION}"], [go, "mod", "tidy"], [go, "build", "-o", "login"]):
        made = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        if made.returncode != 0:
            pytest.skip(f"franz-go cannot be built: {made.stderr[-500:]}")
    return folder / "login"


def test_franz_go(login: tuple[Listener, str], franz_go: Path) -> None:
    broker, mechanism = login
    assert ran([str(franz_go), told(broker, mechanism, broker.broker.unique("mine-go"))]) == "x"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    try:
        jars = ",".join(map(str, spark_kafka_jars()))
    except UnavailableError as missing:
        pytest.skip(str(missing))
    conf = {"spark.jars": jars, "spark.sql.shuffle.partitions": "2"}
    started = session(SparkSettings(master="local[2]", quick_start=True, conf=conf), app_name="logins")
    yield started
    started.stop()


def test_spark(login: tuple[Listener, str], spark: Any) -> None:
    broker, mechanism = login
    topic = broker.broker.unique("mine-spark")
    # Its Kafka client is 3.9: there the handler of OAuth is in a package of its own.
    lines = broker.java(mechanism, handlers="secured.").splitlines()
    options = {f"kafka.{name}": value for name, _, value in (line.partition("=") for line in lines)}
    options |= {"kafka.bootstrap.servers": broker.bootstrap}
    frame = spark.createDataFrame([("x",)], "value string")
    frame.write.format("kafka").options(topic=topic, **options).save()
    read = spark.read.format("kafka").options(subscribe=topic, groupIdPrefix=topic, **options).load()
    assert [bytes(row.value) for row in read.select("value").collect()] == [b"x"]
