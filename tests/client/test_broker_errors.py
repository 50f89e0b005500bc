"""What the client of brokers does about an error code of a partition."""

import pytest

from holdfast.client.brokers import BrokerClient
from holdfast.kafka.error_codes import RETRIABLE, ErrorCode
from holdfast.vocabulary.errors import HoldfastError, UnavailableError

ERRORS = [code for code in ErrorCode if code is not ErrorCode.NONE]


@pytest.mark.parametrize("code", ERRORS, ids=lambda code: code.name)
def test_a_partition_is_retried_exactly_for_the_codes_that_kafka_calls_retriable(code: ErrorCode) -> None:
    client = BrokerClient("127.0.0.1:9")
    with pytest.raises(HoldfastError, match=code.name) as error:
        client._check("orders", 0, code)
    assert isinstance(error.value, UnavailableError) == (code in RETRIABLE)
