"""`holdfast serve` as an operator meets it: real processes, real signals, a real Kafka client."""

import json
import resource
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.support.object_engines.moto import MotoServer
from tests.support.object_engines.s3 import s3_url
from tests.support.server_process import BROKER_ONLY, ServeProcess, produce, read, refused, started
from tests.support.waiting import WAIT_S, until

from holdfast import __version__
from holdfast.app.addresses import Address, check_exposure
from holdfast.app.advertised_urls import located
from holdfast.app.listeners import bound_listener
from holdfast.cli.main import main
from holdfast.log.wal.inspection import inspect
from holdfast.vocabulary.errors import InvalidError


@pytest.fixture
def node(tmp_path: Path) -> ServeProcess:
    return ServeProcess(tmp_path / "node", *BROKER_ONLY)


@pytest.fixture
def whole_node(tmp_path: Path) -> ServeProcess:
    """One with everything that `holdfast serve` starts by default."""
    return ServeProcess(tmp_path / "node", own_interpreter=True)


def test_it_prints_where_it_listens_once_it_does(whole_node: ServeProcess) -> None:
    node = whole_node
    with started(node):
        assert node.port > 0
        addresses = json.loads(node.addresses.read_text())
        assert set(addresses) == {"kafka", "http", "clickhouse"}
        assert addresses["kafka"] == node.kafka
        lines = node.out.splitlines()
        assert lines[0].startswith(f"holdfast {__version__}, node 1 (agent-")
        assert f"kafka      {node.kafka}" in lines
        assert f"http       {node.http}" in lines
        assert "pipelines  on Spark local[*]" in lines
        assert f"data       {node.data}" in lines
        assert f"store      sqlite:///{node.data}/store.db" in lines
        assert f"objects    file://{node.data}/objects" in lines
        assert json.loads((node.data / "addresses.json").read_text()) == addresses
        assert "serving kafka=" in node.log
        socket.create_connection(("127.0.0.1", node.port)).close()
        assert not list(node.directory.glob(".addresses*"))


def test_what_was_acknowledged_is_there_after_a_graceful_stop_and_nothing_is_left_to_publish(
    whole_node: ServeProcess,
) -> None:
    node = whole_node
    with started(node):
        assert produce(node.kafka, "orders", "a", "b", "c") == [0, 1, 2]
        name = node.out.splitlines()[0]
        assert node.terminate() == 0
        assert "stopped" in node.log
        frames = sum(file.frames for file in inspect(node.data / "wal").files)
        assert frames <= 1, "what is published is released"
        assert list((node.data / "objects").rglob("*"))
        node.start()
        assert node.out.splitlines()[0] == name, "the same node of the same cluster"
        assert read(node.kafka, "orders", 3) == ["a", "b", "c"]
        assert produce(node.kafka, "orders", "d") == [3]


def test_what_was_acknowledged_is_there_after_a_kill(node: ServeProcess) -> None:
    with started(node):
        for life in range(3):
            expected = [f"{each}-{n}" for each in range(life + 1) for n in range(10)]
            produce(node.kafka, "orders", *expected[-10:])
            node.kill()
            node.start()
            assert read(node.kafka, "orders", len(expected)) == expected


def test_objects_may_live_in_s3_and_its_keys_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "s3").mkdir()
    with MotoServer(tmp_path / "s3").running() as s3:
        url = s3_url(s3.port, "logs").replace("secret_access_key=any", "secret_access_key=s3cr3t")
        node = ServeProcess(tmp_path / "node", *BROKER_ONLY, env={"HOLDFAST_OBJECTS": url})
        with started(node):
            produce(node.kafka, "orders", "a", "b")
            assert node.terminate() == 0
            node.start()
            assert read(node.kafka, "orders", 2) == ["a", "b"]
            assert "secret_access_key=***" in node.out
            assert "s3cr3t" not in node.out + node.log
            assert node.terminate() == 0
    assert not (node.data / "objects").exists()


def test_an_interrupt_stops_it_gracefully_too(node: ServeProcess) -> None:
    with started(node):
        produce(node.kafka, "orders", "a")
        node.process.send_signal(signal.SIGINT)
        assert node.ended() == 0


def test_a_stop_does_not_wait_for_a_client_that_waits_for_records(node: ServeProcess) -> None:
    with started(node):
        produce(node.kafka, "orders", "a")
        patient = Consumer(
            {"bootstrap.servers": node.kafka, "group.id": "g", "fetch.wait.max.ms": 50_000, "log_level": 0}
        )
        try:
            patient.assign([TopicPartition("orders", 0, 0)])
            until(lambda: patient.poll(0.1), what="it reads what there is, and asks for more")
            assert node.terminate() == 0  # gracefully, so within 45 s
        finally:
            node.start()  # a client does not close while nobody answers
            patient.close()


def test_log_lines_are_json_when_asked_for(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path, "--log", "json", "--log-level", "debug", env={"AGENT_ADDRESS": "127.0.0.1:9090"})
    with started(node):
        produce(node.kafka, "orders", "a")
        assert node.terminate() == 0
        lines = [json.loads(line) for line in node.log.splitlines()]
        assert all({"ts", "level", "logger", "message"} <= set(line) for line in lines)
        serving = next(line for line in lines if line["message"] == "serving")
        assert serving["fields"]["kafka"] == node.kafka
        assert [line["level"] for line in lines if "AGENT_ADDRESS" in line["message"]] == ["warning"]


def test_only_one_process_uses_a_data_directory(node: ServeProcess, tmp_path: Path) -> None:
    with started(node):
        for roles in ("api", "agent"):
            second = refused("--data", str(node.data), "--kafka", "127.0.0.1:0", "--roles", roles, cwd=tmp_path)
            assert second.returncode == 3
            assert f"data directory {node.data}" in second.stderr
            assert f"process {node.process.pid}:" in second.stderr
            assert not second.stdout
        assert produce(node.kafka, "orders", "a") == [0]


def test_only_one_process_listens_at_an_address(node: ServeProcess, tmp_path: Path) -> None:
    with started(node):
        second = refused("--data", str(tmp_path / "other"), "--kafka", node.kafka, cwd=tmp_path)
        assert second.returncode == 3
        assert node.kafka in second.stderr


def test_a_data_directory_is_not_used_with_another_clusters_store(node: ServeProcess, tmp_path: Path) -> None:
    with started(node):
        produce(node.kafka, "orders", "a")
        node.kill()
        strange = refused("--data", str(node.data), "--kafka", "127.0.0.1:0", "--store", "memory:", cwd=tmp_path)
        assert strange.returncode == 2
        assert "holds records of cluster" in strange.stderr
        node.start()
        assert read(node.kafka, "orders", 1) == ["a"]


def test_objects_of_another_cluster_are_refused_and_left_alone(node: ServeProcess, tmp_path: Path) -> None:
    second = ("--data", str(tmp_path / "second"), "--kafka", "127.0.0.1:0", "--objects", f"file://{node.data}/objects")
    with started(node):
        produce(node.kafka, "orders", "a")
        assert node.terminate() == 0
        objects = sorted((node.data / "objects").rglob("*.strm"))
        assert objects
        for roles in ("agent,api", "api"):
            strange = refused(*second, "--roles", roles, cwd=tmp_path)
            assert strange.returncode == 2
            for cluster in (node.data / "cluster-id", tmp_path / "second" / "cluster-id"):
                assert f"cluster {cluster.read_text().strip()}" in strange.stderr
            assert "another --objects prefix" in strange.stderr
            assert "holdfast objects adopt" in strange.stderr
        assert sorted((node.data / "objects").rglob("*.strm")) == objects
        node.start()
        assert read(node.kafka, "orders", 1) == ["a"]


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (["--kafka", "0.0.0.0:0"], "--sasl SCRAM-SHA-512"),
        (["--kafka", "0.0.0.0:0", "--sasl", "SCRAM-SHA-512,PLAIN"], "passwords need TLS"),
        (["--kafka", "0.0.0.0:0", "--sasl", "SCRAM-SHA-512"], "--peer 127.0.0.1:0"),
        (["--kafka", "127.0.0.1:0", "--peer", "0.0.0.0:0"], "--peer 127.0.0.1:0"),
        (["--kafka", "127.0.0.1:0", "--text", "0.0.0.0:0"], "--text-tls-cert"),
    ],
)
def test_listening_beyond_this_machine_is_refused(tmp_path: Path, options: list[str], remedy: str) -> None:
    done = refused("--data", str(tmp_path / "data"), "--http", "off", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert "has no authentication" in done.stderr
    assert remedy in done.stderr
    assert "--insecure" in done.stderr
    assert not done.stdout


async def test_a_listener_with_logins_may_be_reached_from_other_machines() -> None:
    everywhere = Address("0.0.0.0", 0)  # bound and never listening
    async with bound_listener("--kafka", everywhere, insecure=False, authenticates=True) as bound:
        assert not bound.exposed
    with pytest.raises(InvalidError):
        async with bound_listener("--kafka", everywhere, insecure=False):
            pass


def test_listening_beyond_this_machine_is_possible_and_known_to_be_so() -> None:
    with socket.socket() as bound:
        bound.bind(("0.0.0.0", 0))  # bound and never listening
        with pytest.raises(InvalidError):
            check_exposure(Address("0.0.0.0", 0), [bound], insecure=False)
        assert check_exposure(Address("0.0.0.0", 0), [bound], insecure=True)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert not check_exposure(Address("127.0.0.1", 0), [bound], insecure=False)


@pytest.mark.parametrize(
    ("options", "env", "says"),
    [
        (["--kafka", "9092"], {}, "kafka.listen (from flag --kafka)"),
        (["--http", "8080"], {}, "http.listen (from flag --http)"),
        (["--http", "http://127.0.0.1:8080"], {}, "such as 127.0.0.1:8080"),
        (["--roles", "boss"], {}, "api, agent, worker"),
        (["--store", "mysql://u:s3cr3t@h/d"], {}, "store (from flag --store)"),
        (["--set", "kafka.idel_ms=1"], {}, "did you mean kafka.idle_ms"),
        ([], {"HOLDFAST_WAL_FILE_BYTES": "7"}, "wal.file_bytes (from env HOLDFAST_WAL_FILE_BYTES)"),
        (["--config", "missing.toml"], {}, "missing.toml"),
    ],
)
def test_a_wrong_call_is_refused_in_one_sentence(
    options: list[str],
    env: dict[str, str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert main(["serve", "--data", str(tmp_path / "data"), *options]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert "s3cr3t" not in said.err
    assert not said.out
    assert not (tmp_path / "data").exists(), "nothing was begun"


def test_a_host_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = refused("--data", str(tmp_path / "data"), "--kafka", "no-such-host.invalid:9092", cwd=tmp_path)
    assert done.returncode == 2
    assert "no-such-host.invalid" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stop_that_cannot_publish_is_bounded_and_loses_nothing(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path / "node", *BROKER_ONLY, "--stop-ms", "300")
    with started(node):
        produce(node.kafka, "orders", "a", "b")
        objects, aside = node.data / "objects", node.data / "aside"
        objects.rename(aside)
        objects.write_text("no folder")
        assert node.terminate() == 1
        assert "graceful stop exceeded 300 ms" in node.log
        objects.unlink()
        aside.rename(objects)
        node.start()
        assert read(node.kafka, "orders", 2) == ["a", "b"]


def test_a_second_signal_ends_it_at_once_and_loses_nothing(node: ServeProcess) -> None:
    with started(node):
        produce(node.kafka, "orders", "a", "b")
        objects, aside = node.data / "objects", node.data / "aside"
        objects.rename(aside)
        objects.write_text("no folder")
        node.process.send_signal(signal.SIGTERM)
        until(lambda: "a second signal exits at once" in node.log, what="it heard the first signal")
        assert node.terminate() == 128 + signal.SIGTERM
        objects.unlink()
        aside.rename(objects)
        node.start()
        assert read(node.kafka, "orders", 2) == ["a", "b"]


def test_a_producer_that_goes_on_through_a_graceful_restart_loses_and_repeats_nothing(node: ServeProcess) -> None:
    sent = [f"{n:04d}" for n in range(400)]
    with started(node):
        producer = Producer(
            {"bootstrap.servers": node.kafka, "enable.idempotence": True, "log_level": 0, "linger.ms": 0}
        )
        for at, value in enumerate(sent):
            producer.produce("orders", value.encode(), partition=0)
            producer.poll(0)
            if at == 200:
                producer.poll(0.05)
                assert node.terminate() == 0
                node.start()
        assert producer.flush(WAIT_S) == 0
        assert read(node.kafka, "orders", len(sent)) == sent


def test_told_to_stop_before_it_listens_it_just_ends(whole_node: ServeProcess) -> None:
    node = whole_node
    node.launch()
    try:
        until(lambda: (node.data / "lock").exists(), what="it has begun")
        assert node.terminate() == 0
        assert not node.addresses.exists() or "stopped" in node.log
    finally:
        node.kill()


def test_two_live_agents_cannot_have_one_name(node: ServeProcess, tmp_path: Path) -> None:
    with started(node):
        name = (node.data / "agent-id").read_text().strip()
        told = ("--store", f"sqlite:///{node.data}/store.db", "--objects", f"file://{node.data}/objects")
        quick = ("--set", "membership.wait_for_id_ms=200", "--kafka", "127.0.0.1:0", "--agent-id", name)
        second = refused("--data", str(tmp_path / "other"), *told, *quick, cwd=tmp_path)
        assert second.returncode == 2
        assert f"invalid agent id '{name}'" in second.stderr
        assert node.kafka in second.stderr


def test_a_disk_that_fails_ends_the_process_with_the_reason(node: ServeProcess) -> None:
    with started(node):
        produce(node.kafka, "orders", "a")
        # From here on no file may be written beyond its first page: the WAL's next write is an error of the disk's.
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        answers: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": node.kafka, "log_level": 0})
        producer.produce("orders", b"b", on_delivery=lambda error, _: answers.append(error))
        until(lambda: producer.poll(0.1) < 0 or node.process.poll() is not None, what="it ends")
        assert node.ended() == 4
        assert None not in answers
        producer.purge()  # a client that is deleted waits for what it has not sent
        assert "writing failed" in node.log
        assert "the process must stop" in node.log
        node.start()
        assert read(node.kafka, "orders", 1)[0] == "a"


def test_a_server_does_not_import_what_it_does_not_need() -> None:
    heavy = ("rich", "kio", "confluent_kafka", "pyarrow", "obstore", "asyncpg", "grpc", "redis", "numpy")
    code = (
        "import sys, holdfast.cli.main as m, holdfast.cli.serve, holdfast.app.process; m.build_parser(['serve']);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_the_clickhouse_line_it_prints_works(whole_node: ServeProcess) -> None:
    node = whole_node
    pytest.importorskip("chdb")
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with started(node):
        [line] = [line for line in node.out.splitlines() if line.startswith("clickhouse ")]
        command = line.removeprefix("clickhouse ")
        assert command.startswith("curl ")
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_what_is_off_says_why_and_how_to_turn_it_on(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path / "node", "--roles", "api,agent", "--http", "off")
    with started(node):
        lines = node.out.splitlines()
        assert "http       off: --http off" in lines
        assert "pipelines  off: --roles does not include worker" in lines
        assert "clickhouse off: --roles does not include worker" in lines


def test_a_relative_path_says_where_it_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert located("sqlite:///work.db") == f"sqlite:///work.db ({tmp_path}/work.db)"
    assert located(f"sqlite:///{tmp_path}/work.db") == f"sqlite:///{tmp_path}/work.db"
    assert located("postgresql://me:secret@db/x") == "postgresql://me:***@db/x"
