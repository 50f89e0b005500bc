"""Connections of an address: served, delayed or closed, without a clock of their own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.security.client_quotas import (
    DEFAULT,
    Quota,
    QuotaEntity,
    QuotaTable,
    canonical_ip,
    check_entity,
    check_limit,
    check_quota,
)
from holdfast.security.connection_rates import ADMITTED, DELAY_MAX_MS, Admission, ConnectionRates
from holdfast.security.leaky_bucket import BURST_MS
from holdfast.vocabulary.errors import InvalidError

CLOSED = Admission(False, DELAY_MAX_MS)


def rate_of(value: float) -> dict[Quota, float]:
    return {Quota.CONNECTIONS: value}


def test_an_address_beyond_its_rate_waits_for_a_second_at_most() -> None:
    rates = ConnectionRates()
    assert [rates.admit("a", 2, 0) for _ in range(20)] == [ADMITTED] * 20
    assert [rates.admit("a", 2, 0) for _ in range(4)] == [Admission(True, 500), Admission(True, 1_000), CLOSED, CLOSED]
    assert rates.admit("b", 2, 0) == ADMITTED


def test_what_is_closed_does_not_count() -> None:
    rates = ConnectionRates()
    for _ in range(1_000):
        rates.admit("a", 1, 0)
    assert rates.admit("a", 1, 1_000) == Admission(True, 1_000)
    assert rates.admit("a", 1, 3_000) == ADMITTED


@given(st.lists(st.integers(0, 700), max_size=200), st.integers(1, 5))
def test_no_more_are_served_than_the_rate_allows(gaps_ms: list[int], rate: int) -> None:
    rates, now_ms, served = ConnectionRates(), 0, 0
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        admission = rates.admit("a", rate, now_ms)
        served += admission.served
        assert admission.delay_ms <= DELAY_MAX_MS
        assert served <= rate * (now_ms + BURST_MS + DELAY_MAX_MS) / 1_000


def test_an_address_that_is_idle_is_forgotten() -> None:
    rates = ConnectionRates()
    rates.admit("a", 1, 0)
    rates.admit("b", 1, 5_000)
    rates.drop_idle(10_999)
    assert len(rates) == 2
    rates.drop_idle(11_000)
    assert len(rates) == 1
    rates.admit("c", 1, 20_000)
    assert len(rates) == 1


def test_many_addresses_take_bounded_memory() -> None:
    rates = ConnectionRates(addresses_max=100)
    for number in range(1_000):
        assert rates.admit(str(number), 1, 0) == ADMITTED
    assert len(rates) == 100


def test_a_rate_that_is_lowered_locks_nobody_out() -> None:
    rates = ConnectionRates()
    for _ in range(10_000):
        rates.admit("a", 1_000, 0)
    assert rates.admit("a", 1, 10_000) == CLOSED
    assert rates.admit("a", 1, 11_000) == ADMITTED


def test_the_rate_of_an_address_counts_before_the_default() -> None:
    table = QuotaTable(
        {QuotaEntity(ip="10.0.0.1"): rate_of(1), QuotaEntity(ip=DEFAULT): rate_of(2), QuotaEntity(ip="::1"): rate_of(3)}
    )
    assert table.connection_rate("10.0.0.1") == ("10.0.0.1", 1)
    assert table.connection_rate("::ffff:10.0.0.1") == ("10.0.0.1", 1)
    assert table.connection_rate("0:0:0:0:0:0:0:1") == ("::1", 3)
    assert table.connection_rate("fe80::1%eth0") == ("fe80::1", 2)
    assert table.connection_rate("?") is None
    assert QuotaTable({QuotaEntity(ip="10.0.0.1"): rate_of(1)}).connection_rate("10.0.0.2") is None
    assert QuotaTable({QuotaEntity("ann"): {Quota.PRODUCE: 1}}).connection_rate("10.0.0.1") is None
    assert table.limit(Quota.CONNECTIONS, "ann", "app") is None


def test_an_ip_stands_alone_and_has_one_quota() -> None:
    check_entity(QuotaEntity(ip=DEFAULT))
    check_entity(QuotaEntity(ip="10.0.0.1"))
    check_quota(QuotaEntity(ip=DEFAULT), Quota.CONNECTIONS)
    for entity in (QuotaEntity("ann", ip=DEFAULT), QuotaEntity(None, "app", "10.0.0.1")):
        with pytest.raises(InvalidError, match="not combined"):
            check_entity(entity)
    with pytest.raises(InvalidError, match="one of connection_creation_rate"):
        check_quota(QuotaEntity(ip="10.0.0.1"), Quota.PRODUCE)
    with pytest.raises(InvalidError, match="one of producer_byte_rate"):
        check_quota(QuotaEntity("ann"), Quota.CONNECTIONS)


@pytest.mark.parametrize("value", [0, -1, 0.5, 2**31, float("nan")])
def test_a_rate_that_means_nothing_is_refused(value: float) -> None:
    with pytest.raises(InvalidError, match="connection_creation_rate"):
        check_limit(Quota.CONNECTIONS, value)


@pytest.mark.parametrize("text", ["example.org", "10.0.0", "10.0.0.0/8", "", "010.0.0.1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="IP address"):
        canonical_ip(text)
