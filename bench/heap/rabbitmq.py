"""RabbitMQ: a quorum queue with persistent messages. An enqueue returns when the broker has confirmed all its messages.

AMQP 0-9-1 has no answer to an acknowledgement: `ack` returns when it is sent, so it may be lost in a crash, unlike with the other
queues. A get takes one message, so several are pushed to a consumer that lasts as long as the pop. Priorities are 0 to 31, the
greatest first (RabbitMQ 4.3; less before): our 1,000 are 32 here.
"""

import shutil
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from bench.heap.amqp import Channel, Method, channel, long, method, persistent, short
from bench.heap.queue import Clients, Job, QueueClient
from bench.heap.threads import on_thread
from holdfast.testing.server_process import ServerProcess, free_port
from holdfast.vocabulary.errors import UnavailableError

_DEBIAN: Final = "/usr/lib/rabbitmq/bin"
_QUEUE: Final = short(b"jobs")
_DURABLE: Final = b"\x02"
_QUORUM: Final = long(short(b"x-queue-type") + b"S" + long(b"quorum"))
_PUBLISH: Final = method(Method.PUBLISH, b"\0\0" + short(b"") + _QUEUE + b"\0")
_GET: Final = method(Method.GET, b"\0\0" + _QUEUE + b"\0")
_PRIORITY_MAX: Final = 31
_PRIORITIES_OF_ONE: Final = 32  # how many of ours are one of theirs


def program(name: str) -> str:
    """Where it is. `UnavailableError`: nowhere."""
    # Debian's is looked for first: the one of the same name on its PATH becomes another user, who may write nowhere here.
    found = shutil.which(name, path=_DEBIAN) or shutil.which(name)
    if found is None:
        raise UnavailableError(name, "not installed")
    return found


class EpmdServer(ServerProcess):
    """Erlang's port mapper, for this broker alone. Without it the broker would start one that outlives it."""

    name = "epmd"

    def argv(self) -> list[str]:
        return [program("epmd"), "-port", str(self.port), "-address", "127.0.0.1"]


class RabbitmqServer(ServerProcess):
    """A broker of one node, whose files, cookie and settings are all in its directory."""

    name = "rabbitmq"
    start_timeout_ms = 60_000

    def __init__(self, directory: Path, epmd: EpmdServer) -> None:
        super().__init__(directory)
        self._epmd, self._dist_port, self._plugins = epmd, free_port(), directory / "plugins"

    def prepare(self) -> None:
        super().prepare()
        self._plugins.write_text("[].")

    def argv(self) -> list[str]:
        none = self.directory / "none"  # instead of settings of this machine
        settings = {
            "HOME": self.directory,
            "ERL_EPMD_PORT": self._epmd.port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RUNNING_UNDER_SYSTEMD": "true",  # its script then becomes the broker, so that the process to end is known
            "RABBITMQ_NODENAME": f"bench-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": self._dist_port,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": self.data,
            "RABBITMQ_LOG_BASE": self.directory,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self._plugins,
            "RABBITMQ_CONF_ENV_FILE": none / "env",
            "RABBITMQ_CONFIG_FILE": none / "rabbitmq",
            "RABBITMQ_CONFIG_FILES": none / "more",
            "RABBITMQ_ADVANCED_CONFIG_FILE": none / "advanced",
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items()), program("rabbitmq-server")]


class RabbitmqClient:
    def __init__(self, link: Channel) -> None:
        self._link, self._published, self._pops = link, 0, 0

    async def enqueue(self, jobs: Sequence[Job]) -> None:
        self._link.send(
            *(
                _PUBLISH + persistent(payload, _PRIORITY_MAX - priority // _PRIORITIES_OF_ONE)
                for priority, payload in jobs
            )
        )
        first, self._published = self._published + 1, self._published + len(jobs)
        unconfirmed = set(range(first, self._published + 1))
        while unconfirmed:
            _, arguments = await self._link.receive(Method.ACK)
            tag, multiple = struct.unpack(">QB", arguments)
            unconfirmed -= set(range(first, tag + 1)) if multiple else {tag}

    async def pop(self, count: int) -> Sequence[int]:
        # A cancel drops what is pushed and not sent yet. The get is answered after the queue has pushed what the consumer may have,
        # so a cancel that is sent then comes after it. The get takes the last message.
        pushed: list[int] = []
        if count > 1:
            self._pops += 1
            consumer = short(
                b"pop %d" % self._pops
            )  # what a consumer of the same name has would count; gets have numbers
            self._link.send(
                method(Method.QOS, struct.pack(">IHB", 0, count - 1, 0)),
                method(Method.CONSUME, b"\0\0" + _QUEUE + consumer + b"\0" + long(b"")),
            )
        self._link.send(_GET)
        answer, arguments = await self._receive(pushed, Method.GET_OK, Method.GET_EMPTY)
        if count > 1:
            self._link.send(method(Method.CANCEL, consumer + b"\0"))
            await self._receive(pushed, Method.CANCEL_OK)
        return [*pushed, *struct.unpack_from(">Q", arguments)] if answer is Method.GET_OK else pushed

    async def ack(self, popped: Sequence[int]) -> None:
        """Acknowledge these and what this client has popped before them."""
        self._link.send(method(Method.ACK, struct.pack(">QB", max(popped), 1)))

    async def _receive(self, pushed: list[int], *expected: Method) -> tuple[Method, bytes]:
        """One of the expected methods; tags of messages before it are added to the pushed ones."""
        while True:
            number, arguments = await self._link.receive(*expected, Method.DELIVER, Method.QOS_OK, Method.CONSUME_OK)
            if number in expected:
                return number, arguments
            if number is Method.DELIVER:
                pushed += struct.unpack_from(">Q", arguments, 1 + arguments[0])


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Clients]:
    epmd = EpmdServer(directory)
    server = RabbitmqServer(directory, epmd)
    server.argv()
    epmd.argv()
    async with on_thread(epmd.running()), on_thread(server.running()):

        @asynccontextmanager
        async def clients(number: int) -> AsyncIterator[Sequence[QueueClient]]:
            async with AsyncExitStack() as stack:
                links = [await stack.enter_async_context(channel(server.port)) for _ in range(number)]
                await links[0].call(Method.QUEUE_DELETE, b"\0\0" + _QUEUE + b"\0", Method.QUEUE_DELETE_OK)
                declared = b"\0\0" + _QUEUE + _DURABLE + _QUORUM
                await links[0].call(Method.QUEUE_DECLARE, declared, Method.QUEUE_DECLARE_OK)
                for link in links:
                    await link.call(Method.CONFIRM_SELECT, b"\0", Method.CONFIRM_SELECT_OK)
                yield [RabbitmqClient(link) for link in links]

        yield clients
