"""Two real servers with logins on one store, and a topic of which each leads a partition."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
from tests.support.secured_server import LOGINS, SecuredServer
from tests.support.server_process import started
from tests.support.waiting import until

V1, TOPIC = "/api/v1", "orders"
PARTITIONS = 2


class Nodes(NamedTuple):
    """Each leads one of the partitions. `root`: clients of the administrator, at either."""

    ann: SecuredServer
    bob: SecuredServer
    root: tuple[httpx.Client, httpx.Client]

    @property
    def both(self) -> tuple[SecuredServer, SecuredServer]:
        return self.ann, self.bob


@contextmanager
def two_secured_nodes(folder: Path) -> Iterator[Nodes]:
    """Both, with a topic."""
    store = f"sqlite:///{folder}/ann/data/store.db"
    shared = (
        "--store",
        store,
        "--objects",
        f"file://{folder}/objects",
        "--grpc",
        "127.0.0.1:0",
        "--text",
        "127.0.0.1:0",
    )
    quiet = ("--audit", "off", "--super-users", "User:root")
    (folder / "ann" / "data").mkdir(parents=True)
    ann, bob = (SecuredServer(folder / name, *LOGINS, *shared, *quiet, "--agent-id", name) for name in ("ann", "bob"))
    with started(ann), started(bob), ExitStack() as stack:
        ann.administer(["root"])
        key = ann.create_key("root")[1]
        first, second = (stack.enter_context(each.with_key(key)) for each in (ann, bob))
        for client in (first, second):
            until(partial(lists_topics, client))
        answer = first.post(f"{V1}/topics", json={"name": TOPIC, "partitions": PARTITIONS})
        assert answer.status_code == httpx.codes.CREATED, answer.text
        until(lambda: len(leaders(first)) == PARTITIONS, what="each leads one")
        yield Nodes(ann, bob, (first, second))


def leaders(client: httpx.Client) -> set[int]:
    found = client.get(f"{V1}/topics/{TOPIC}/partitions").json()
    return {each["leader"] for each in found if each["leader"] is not None}


def lists_topics(client: httpx.Client) -> bool:
    return client.get(f"{V1}/topics").status_code == httpx.codes.OK
