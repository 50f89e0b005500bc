"""Every API and version of the table: what kio has, when it became flexible, and that its least answer can be written."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from holdfast.gateways.kafka.api import Api
from holdfast.gateways.kafka.api_table import KAFKA_APIS
from holdfast.kafka.codec import encode

EVERY = [(api, version) for api in KAFKA_APIS.values() for version in range(api.versions[0], api.versions[1] + 1)]
DOCS = Path(__file__).parents[3] / "docs" / "kafka.md"

# Each worker that runs one of them imports every schema that kio has.
pytestmark = pytest.mark.xdist_group("kafka-schemas")


@pytest.mark.parametrize(("api", "version"), EVERY, ids=lambda each: getattr(each, "name", str(each)))
def test_a_version_is_flexible_where_it_is_in_kafka(api: Api, version: int) -> None:
    request: Any = load_request_schema(api.key, version)
    assert request.__flexible__ is api.is_flexible(version)
    assert request.__name__ == f"{api.name}Request"


def least(kind: type) -> dict[str, Any]:
    """The answer with the least in it: no elements, no text, no error."""
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING:
            continue
        if "tuple[" in str(field.type):
            given[field.name] = ()
        elif "None" in str(field.type):
            given[field.name] = None
        elif field.name != "throttle_time":
            given[field.name] = {"string": "", "bytes": b"", "bool": False}.get(field.metadata["kafka_type"], 0)
    return given


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, version) for api, version in EVERY if api.control is not None],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_the_minimal_response_of_the_newest_version_can_be_encoded_in_every_version(api: Api, version: int) -> None:
    newest, kind = load_response_schema(api.key, api.versions[1]), load_response_schema(api.key, version)
    data = encode(api.key, version, {**least(newest), **least(kind)})
    _, size = entity_reader(kind)(data, 0)
    assert size == len(data)


def test_each_api_has_exactly_one_handler() -> None:
    assert all([api.control, api.raw, api.direct].count(None) == 2 for api in KAFKA_APIS.values())
    assert len({api.name for api in KAFKA_APIS.values()}) == len(KAFKA_APIS)


def test_the_docs_page_lists_exactly_these_apis_and_versions() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+)(?:–(\d+))? \|", DOCS.read_text(), re.MULTILINE)
    listed = {int(key): (name, (int(low), int(high or low))) for name, key, low, high in rows}
    assert listed == {key: (api.name, api.versions) for key, api in KAFKA_APIS.items()}
