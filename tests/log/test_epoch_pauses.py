"""Epochs that end soon are followed by others after pauses that double."""

from holdfast.log.epoch_pauses import EpochPauses


def taken(pauses: EpochPauses, until_ms: int, first_ms: int = 0) -> list[int]:
    return [at_ms for at_ms in range(first_ms, until_ms, 10) if pauses.take("orders", at_ms)]


def test_pauses_double_up_to_a_limit() -> None:
    assert taken(EpochPauses(100), 6_000) == [0, 100, 300, 700, 1_500, 3_100, 4_700]


def test_an_epoch_that_lasted_is_followed_at_once() -> None:
    pauses = EpochPauses(100)
    assert taken(pauses, 400) == [0, 100, 300]
    assert pauses.take("orders", 3_000)
    assert taken(pauses, 3_200, first_ms=3_010) == [3_100]


def test_leases_do_not_hold_up_each_other() -> None:
    pauses = EpochPauses(100)
    assert pauses.take("orders", 0)
    assert pauses.take("clicks", 0)
    assert not pauses.take("orders", 50)
    pauses.sweep({"clicks"})
    assert pauses.take("orders", 50)
    assert not pauses.take("clicks", 50)
