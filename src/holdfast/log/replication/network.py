"""How a leader reaches replicas: by the ids of their WALs, its own among them. A protocol; an agent brings it.

The one rule: a message is answered once, by the replica's answer or by None: it was not sent, or the connection has ended, and its
fate is unknown. Nothing is repeated here. An `Announce` has no answer of a replica: None is its only one.
"""

from collections.abc import Callable
from typing import Protocol

from holdfast.log.replication.messages import Answer, Request

OnAnswer = Callable[[Answer | None], None]
"""Called on the event loop, never from within `send`."""


class ReplicaListener(Protocol):
    """Who leads by a network, for one partition. Called on the event loop, and must not block it."""

    def connected(self, wal_id: str) -> None:
        """The replica can be reached (again): what was sent before may be lost."""
        ...

    def disconnected(self, wal_id: str) -> None:
        """It cannot be reached."""
        ...

    def heard(self, wal_id: str) -> None:
        """Its connection is alive."""
        ...


class ReplicaNetwork(Protocol):
    """The replicas of a cluster, as one agent reaches them."""

    @property
    def wal_id(self) -> str:
        """The id of this agent's own WAL."""
        ...

    def is_connected(self, wal_id: str) -> bool:
        """Whether messages to this replica can be sent now; to the own one always."""
        ...

    def send(self, wal_id: str, message: Request, on_answer: OnAnswer) -> None:
        """Send a message to a replica."""
        ...

    def listen(self, listener: ReplicaListener) -> Callable[[], None]:
        """Tell the listener of connections, from now on until what is returned is called."""
        ...
