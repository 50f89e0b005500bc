"""One name, one class: a name that two public classes have is listed here, with the reason."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"

BLOCKING = "the same for asyncio and, in `sync`, without"
HTTP_BODY = "the body of HTTP has the name that its OpenAPI schema shows"
CLIENTS_VIEW = "what a client is told of it; the server's own is not exported"
PUBLIC_DOOR = "the public door's, around the kernel's"
FIELDS_WORD = "both are the field's own word for it"
EACH_LIBRARY = "each library's users look for it under this name"
OWN_FORMAT = "a record or message of its own format, always written with its module"

REASONS = {
    "Ack": OWN_FORMAT,
    "Admin": BLOCKING,
    "ApiKey": FIELDS_WORD,
    "Assignment": HTTP_BODY,
    "CommittedOffset": HTTP_BODY,
    "Consumer": BLOCKING,
    "GroupDescription": CLIENTS_VIEW,
    "GroupListing": CLIENTS_VIEW,
    "GroupMember": CLIENTS_VIEW,
    "HeapClient": BLOCKING,
    "HeapFigures": HTTP_BODY,
    "HeapService": "gRPC's service has the name that its proto gives it",
    "Held": PUBLIC_DOOR,
    "HoldfastBroker": EACH_LIBRARY,
    "Lease": PUBLIC_DOOR,
    "Message": "of a heap, to its users; of the registry, to its users",
    "MissingRuleError": "raised while a gateway's own table of rules is imported; nobody catches it",
    "Move": OWN_FORMAT,
    "Need": "what a route of HTTP and what a call of gRPC needs differ",
    "PartitionDescription": HTTP_BODY,
    "PartitionFigures": HTTP_BODY,
    "PartitionProgress": HTTP_BODY,
    "Producer": BLOCKING,
    "Record": CLIENTS_VIEW,
    "Session": PUBLIC_DOOR,
    "TopicDescription": HTTP_BODY,
    "TopicPartition": CLIENTS_VIEW,
    "UnnamedNeedError": "a defect of one gateway's code, raised in tests; nobody catches it",
}


@cache
def repeated() -> dict[str, list[str]]:
    """Public class → its files, where there are several."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        if not path.is_relative_to(SOURCE / "v1") and "_pb2" not in path.name:
            for name in {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}:
                if not name.startswith("_"):
                    found[name].append(str(path.relative_to(SOURCE)))
    return {name: files for name, files in found.items() if len(files) > 1}


def test_no_two_public_classes_have_one_name_without_a_reason() -> None:
    assert {name: files for name, files in repeated().items() if name not in REASONS} == {}


def test_no_reason_is_left_behind() -> None:
    assert sorted(REASONS.keys() - repeated().keys()) == []
