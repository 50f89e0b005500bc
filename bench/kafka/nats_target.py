"""NATS JetStream with sync always, under load from a client as bare as its protocol. A stream stands for a topic.

Streams have no partitions, so it is measured with one only. `window` is how many publishes are unacknowledged at most.
"""

import asyncio
import itertools
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.kafka.programs import NoCompilerError, compiled, run_json
from bench.kafka.targets import RUN_TIMEOUT_S, Done, Target
from holdfast.testing.server_process import ServerProcess
from holdfast.vocabulary.errors import UnavailableError

_names: Final = itertools.count(1)


class NatsServer(ServerProcess):
    """`nats-server` from its wheel."""

    name = "nats"

    def argv(self) -> list[str]:
        beside = Path(sys.executable).parent / "nats-server"
        program = str(beside) if beside.exists() else shutil.which("nats-server")
        if program is None:
            raise UnavailableError(self.name, "there is no program nats-server")
        return [program, "-c", str(self.directory / "nats.conf")]

    def prepare(self) -> None:
        super().prepare()
        settings = f'jetstream {{ store_dir: "{self.data}", sync_interval: always }}'
        (self.directory / "nats.conf").write_text(f"listen: 127.0.0.1:{self.port}\n{settings}\n")


class JetStreamTarget:
    """One server; every stream is of one subject with the same name."""

    def __init__(self, server: NatsServer, window: int) -> None:
        assert server._process is not None
        self.pid, self._port, self._window = server._process.pid, server.port, window
        self._program = str(compiled("jetstream"))

    def create(self, partitions: int) -> str:
        from nats.js.api import StorageType, StreamConfig

        name = f"s{next(_names)}"
        config = StreamConfig(name=name, subjects=[name], storage=StorageType.FILE)
        self._ask(lambda stream: stream.add_stream(config))
        return name

    def drop(self, topic: str) -> None:
        self._ask(lambda stream: stream.delete_stream(topic))

    def produce(self, topic: str, partitions: int, size: int, seconds: float, *settings: str) -> Done:
        return self._run("produce", topic, self._window, size, seconds)

    def consume(self, topic: str, partitions: int, records: int, seconds: float) -> Done:
        from nats.js.api import AckPolicy, ConsumerConfig

        to = f"{topic}-read"
        config = ConsumerConfig(durable_name=to, deliver_subject=to, ack_policy=AckPolicy.NONE)
        self._ask(lambda stream: stream.add_consumer(topic, config))
        return self._run("consume", to, records, seconds)

    def latency(self, topic: str, size: int, seconds: float, per_second: float) -> Done:
        return self._run("latency", topic, size, seconds, per_second)

    def _run(self, mode: str, *args: object) -> Done:
        argv = [self._program, mode, str(self._port), *(str(each) for each in args)]
        return run_json(argv, timeout_s=RUN_TIMEOUT_S)

    def _ask(self, question: Callable[[Any], Awaitable[object]]) -> None:
        async def ask() -> None:
            import nats

            client = await nats.connect(f"nats://127.0.0.1:{self._port}")
            try:
                await question(client.jetstream())
            finally:
                await client.close()

        asyncio.run(ask())


@contextmanager
def jetstream(directory: Path, *, window: int) -> Iterator[Target]:
    try:
        import nats  # noqa: F401 (is it there?)

        compiled("jetstream")
    except (ModuleNotFoundError, NoCompilerError) as missing:
        raise UnavailableError("nats", str(missing)) from None
    directory.mkdir(parents=True, exist_ok=True)
    with NatsServer(directory).running() as server:
        yield JetStreamTarget(server, window)
