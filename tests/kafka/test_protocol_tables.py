"""Codes, keys and retriability agree with kio, which is generated from Kafka's own definitions."""

from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map

from holdfast.gateways.kafka import errors
from holdfast.gateways.kafka.api_table import APIS
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.api_names import API_NAMES, api_name
from holdfast.kafka.error_codes import RETRIABLE, ErrorCode, error_name
from holdfast.vocabulary.errors import ClosedError, ExpiredError, FencedError, UnavailableError

KIO = {int(code.value): code for code in KioErrorCode}

OURS = {ApiKey.HEAP, ApiKey.HEAP_POP}  # which Kafka does not have


def test_every_error_code_has_kafkas_name() -> None:
    assert {code.name.lower() for code in ErrorCode} == {KIO[code].name for code in ErrorCode}


def test_the_retriable_codes_are_those_of_kafka() -> None:
    assert {code for code in ErrorCode if KIO[code].retriable} == RETRIABLE


def test_a_code_without_a_name_is_shown_as_a_number() -> None:
    assert (error_name(3), error_name(9_999)) == ("UNKNOWN_TOPIC_OR_PARTITION", "error 9999")


def test_every_api_key_is_that_of_its_messages() -> None:
    for key in set(ApiKey) - OURS:
        request = _newest_request(key)
        assert int(request.__api_key__) == key
        assert request.__name__ == f"{key.api_name}Request"


def test_every_api_has_kafkas_name() -> None:
    assert {key: name.replace("_", "") for key, name in api_key_map.items()} == {
        key: name.lower() for key, name in API_NAMES.items() if key not in OURS
    }
    assert {int(key): key.api_name for key in ApiKey}.items() <= API_NAMES.items()
    assert (api_name(76), api_name(9_999)) == ("ShareGroupHeartbeat", "API 9999")


def _newest_request(key: ApiKey) -> Any:
    return load_request_schema(key, APIS[key].versions[1])


def test_our_retriable_errors_get_retriable_codes() -> None:
    for kind, code in (*errors._CODES, *errors._GROUP_CODES):
        if issubclass(kind, UnavailableError | FencedError | ExpiredError | ClosedError):
            assert code in RETRIABLE, kind
