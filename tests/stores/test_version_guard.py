"""The guard: what counts as going backwards, and that it is never forgotten."""

import pytest

from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.errors import CorruptError


@pytest.fixture
def faults() -> list[CorruptError]:
    return []


@pytest.fixture
def guard(faults: list[CorruptError]) -> VersionGuard:
    return VersionGuard("store x", incarnation="one", version=10, on_fault=faults.append)


def test_versions_that_stay_or_grow_are_accepted(guard: VersionGuard, faults: list[CorruptError]) -> None:
    for version in (10, 11, 11, 40):
        guard.observe(version, known_version=guard.check(), incarnation="one")
    assert guard.check() == 40
    assert faults == []


def test_a_response_overtaken_by_another_is_no_fault(guard: VersionGuard) -> None:
    slow, fast = guard.check(), guard.check()
    guard.observe(20, known_version=fast)
    guard.observe(15, known_version=slow)
    assert guard.check() == 20


def test_a_version_below_the_known_one_stops_every_holder(guard: VersionGuard, faults: list[CorruptError]) -> None:
    guard.observe(20, known_version=guard.check())
    with pytest.raises(CorruptError) as caught:
        guard.observe(19, known_version=guard.check())
    assert "20" in str(caught.value)
    assert "19" in str(caught.value)
    assert faults == [caught.value]
    with pytest.raises(CorruptError):
        guard.check()


def test_another_incarnation_stops_every_holder_even_with_a_higher_version(
    guard: VersionGuard, faults: list[CorruptError]
) -> None:
    with pytest.raises(CorruptError) as caught:
        guard.observe(1_000, known_version=guard.check(), incarnation="two")
    assert "one" in str(caught.value)
    assert "two" in str(caught.value)
    assert faults == [caught.value]


def test_the_first_fault_is_the_one_raised(guard: VersionGuard) -> None:
    known_version = guard.check()
    with pytest.raises(CorruptError) as first:
        guard.fail("became a replica")
    with pytest.raises(CorruptError) as later:
        guard.observe(1, known_version=known_version)
    with pytest.raises(CorruptError) as checked:
        guard.check()
    assert first.value is later.value is checked.value


def test_a_fault_stays_when_versions_recover(guard: VersionGuard) -> None:
    known_version = guard.check()
    with pytest.raises(CorruptError):
        guard.observe(5, known_version=known_version)
    guard.observe(50, known_version=known_version, incarnation="one")
    with pytest.raises(CorruptError):
        guard.check()
