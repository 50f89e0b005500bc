"""One busy server for all tests of this folder: every gateway on, traces sent to a collector of ours, a group that lags."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import httpx
import pytest
from confluent_kafka import Consumer, Producer
from tests.support.server_process import ServeProcess, started
from tests.support.trace_collector import TraceCollector, trace_collector
from tests.support.waiting import WAIT_S, until

from holdfast.v1.produce_service_pb2 import ProduceRequest
from holdfast.v1.produce_service_pb2_grpc import ProduceServiceStub
from holdfast.v1.record_pb2 import NewRecord

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203331-00"
RECORDS, READ = 100, 40


@dataclass(frozen=True)
class BusyServer:
    node: ServeProcess
    collector: TraceCollector
    consumer: Consumer
    http_answer: httpx.Response

    @property
    def page(self) -> str:
        """Its metrics now."""
        answer = httpx.get(f"{self.node.http}/metrics", timeout=WAIT_S)
        assert answer.status_code == 200
        return answer.text


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyServer]:
    with trace_collector() as collector:
        node = ServeProcess(
            tmp_path_factory.mktemp("busy"),
            *("--roles", "api,agent", "--text", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--log", "json"),
            *("--traces", f"otlp:{collector.url}", "--trace-ratio", "0"),
            *("--set", "traces.interval_ms=50"),
        )
        with started(node):
            _send(node)
            consumer = _read_some(node)
            try:
                answer = _over_http(node)
                _over_text(node)
                _over_grpc(node)
                yield BusyServer(node, collector, consumer, answer)
            finally:
                consumer.close()


def _send(node: ServeProcess) -> None:
    topic = {"name": "orders", "partitions": 1, "config": {"segment.ms": "200"}}
    assert httpx.post(f"{node.http}/api/v1/topics", json=topic, timeout=WAIT_S).status_code == 201
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 0})
    for parent in (PARENT, UNSAMPLED):
        producer.produce("orders", b"traced", partition=0, headers={"traceparent": parent})
        assert producer.flush(WAIT_S) == 0
    for number in range(RECORDS - 2):
        producer.produce("orders", f"{number}", partition=0)
    assert producer.flush(WAIT_S) == 0


def _read_some(node: ServeProcess) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": 0,
        }
    )
    consumer.subscribe(["orders"])
    for _ in range(READ):
        message = until(lambda: consumer.poll(0.1))
        assert message is not None
        assert message.error() is None
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    return consumer


def _over_http(node: ServeProcess) -> httpx.Response:
    assert httpx.post(f"{node.http}/api/pipelines", json={"name": "to-rows"}, timeout=WAIT_S).status_code == 201
    headers = {"traceparent": PARENT, "x-request-id": "from-the-client-1"}
    body = {"topic": "orders", "value": "over HTTP"}
    return httpx.post(f"{node.http}/api/v1/produce", json=body, headers=headers, timeout=WAIT_S)


def _over_grpc(node: ServeProcess) -> None:
    with grpc.insecure_channel(node.grpc) as channel:
        request = ProduceRequest(topic="orders", records=[NewRecord(value=b"over gRPC")])
        ProduceServiceStub(channel).Produce(request, metadata=(("traceparent", PARENT),), timeout=WAIT_S)


def _over_text(node: ServeProcess) -> None:
    host, _, port = json.loads(node.addresses.read_text())["text"].rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as connection:
        for request in (b"REGISTER logs", b"PUT logs one", b"GET logs"):
            connection.sendall(len(request).to_bytes(4, "little") + request)
            assert connection.recv(100)
