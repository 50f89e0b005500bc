"""Credentials of tasks, on a server that has roles: below their prefix they read and write, and nowhere else."""

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store
from tests.support.object_engines.s3 import BUCKET
from tests.support.object_engines.seaweedfs import SeaweedServer

from holdfast.contracts.objects import Objects, Stored
from holdfast.objects.errors import RequestRefusedError
from holdfast.objects.task_credentials import LIFETIME_S, TaskObjects, session_policy
from holdfast.objects.urls import open_objects, parse_objects_url
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError, UsageError
from holdfast.vocabulary.random import SystemRandom

ROLE = "arn:aws:iam::000000000000:role/tasks"
KEYS = {"access_key_id": "driver", "secret_access_key": "driver-secret"}


class ServerWithRoles(SeaweedServer):
    """One identity that may do everything, and one role that it may assume."""

    def prepare(self) -> None:
        super().prepare()
        credentials = [{"accessKey": KEYS["access_key_id"], "secretKey": KEYS["secret_access_key"]}]
        driver = {"name": "driver", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
        everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": [f"arn:aws:s3:::{BUCKET}/*"]}
        anyone = {"Effect": "Allow", "Principal": "*", "Action": ["sts:AssumeRole"]}
        roles = {
            "sts": {
                "tokenDuration": "1h",
                "maxSessionLength": "12h",
                "issuer": "holdfast-tests",
                "signingKey": base64.b64encode(b"k" * 32).decode(),
            },
            "policy": {"defaultEffect": "Deny", "storeType": "memory"},
            "policies": [{"name": "objects", "document": {"Version": "2012-10-17", "Statement": [everything]}}],
            "roles": [
                {
                    "roleName": "tasks",
                    "roleArn": ROLE,
                    "attachedPolicies": ["objects"],
                    "trustPolicy": {"Version": "2012-10-17", "Statement": [anyone]},
                }
            ],
        }
        (self.directory / "identities.json").write_text(json.dumps({"identities": [driver]}))
        (self.directory / "roles.json").write_text(json.dumps(roles))

    def argv(self) -> list[str]:
        given = [each for each in super().argv() if each != "-s3.iam=false"]
        files = (f"-s3.config={self.directory}/identities.json", f"-s3.iam.config={self.directory}/roles.json")
        return [*given, *files]

    def ready(self) -> bool:
        """The gateway listens before volumes can be written, so that something is written, by who may."""
        config: Any = {**KEYS, "endpoint": f"http://127.0.0.1:{self.port}", "region": "us-east-1"}
        store = S3Store(BUCKET, config=config, client_options={"allow_http": True}, retry_config={"max_retries": 0})
        try:
            obstore.put(store, "ready/now", b"?")
        except BaseError:
            return False
        return True


def url_of(port: int, **more: str) -> str:
    return f"s3://{BUCKET}/data?" + urlencode({"endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1", **more})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerWithRoles]:
    with ServerWithRoles(tmp_path_factory.mktemp("roles")).running() as running:
        yield running


async def refused(objects: Objects, key: str) -> bool:
    try:
        await objects.put(key, [b"rows"])
    except RequestRefusedError:
        return True
    return False


async def test_below_its_prefix_a_task_reads_and_writes_and_nowhere_else(server: ServerWithRoles) -> None:
    url = url_of(server.port, **KEYS, task_role=ROLE)
    scoped = TaskObjects(url, "c1/streams/p1/").url()
    assert KEYS["secret_access_key"] not in scoped
    assert "task_role" not in scoped
    clock, random = RealClock(), SystemRandom()
    async with (
        open_objects(url, clock=clock, random=random) as driver,
        open_objects(scoped, clock=clock, random=random) as task,
    ):
        assert isinstance(await driver.put("c1/streams/p2/other", [b"neighbour"]), Stored)
        assert isinstance(await task.put("c1/streams/p1/1/piece", [b"rows"]), Stored)
        assert await task.get("c1/streams/p1/1/piece") == b"rows"
        assert await driver.get("c1/streams/p1/1/piece") == b"rows"
        assert await refused(task, "c1/streams/p2/mine")
        with pytest.raises(RequestRefusedError):
            await task.get("c1/streams/p2/other")


class DatedClock(FakeClock):
    """Its date is today's: a server refuses signatures of another time."""

    def now_ms(self) -> int:
        return RealClock().now_ms()


def test_credentials_are_renewed_before_they_end(server: ServerWithRoles) -> None:
    clock = DatedClock()
    objects = TaskObjects(url_of(server.port, **KEYS, task_role=ROLE), "p/", clock=clock)
    first = objects.url()
    assert objects.url() == first
    clock.advance_ms(LIFETIME_S * 500)
    assert objects.url() != first


def test_a_role_that_cannot_be_assumed_is_named(server: ServerWithRoles) -> None:
    with pytest.raises(UsageError, match="refuses AssumeRole of arn:aws:iam::000000000000:role/none: 40"):
        TaskObjects(url_of(server.port, **KEYS, task_role="arn:aws:iam::000000000000:role/none"), "p/").url()
    with pytest.raises(InvalidError, match="access_key_id"):
        TaskObjects(url_of(server.port, task_role=ROLE), "p/").url()
    with pytest.raises(UnavailableError, match="AssumeRole"):
        TaskObjects(url_of(1, **KEYS, task_role=ROLE), "p/").url()


def test_without_a_role_the_url_is_the_drivers() -> None:
    for url in ("file:///objects", url_of(1, **KEYS)):
        assert TaskObjects(url, "p/").url() == url


def test_the_policy_is_for_the_prefix_below_the_urls_own() -> None:
    policy = json.loads(session_policy(parse_objects_url(url_of(1)), "c1/streams/p1/"))
    assert policy["Statement"][0]["Resource"] == [f"arn:aws:s3:::{BUCKET}/data/c1/streams/p1/*"]
