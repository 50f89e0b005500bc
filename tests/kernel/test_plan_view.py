"""The plan as an agent sees it: what is settled needs no decision."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.keys import PLANS, holder_key, placed_resource, transfer_key
from holdfast.kernel.lease import Held, Lease
from holdfast.kernel.mirror import Mirror
from holdfast.kernel.plan_actions import decide
from holdfast.kernel.plan_view import PlanMirrors, PlanView
from holdfast.kernel.transfer import Transfer, TransferRecord, TransferState
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.tasks import Notify

RESOURCE = placed_resource("orders", 1)
AGENTS = st.sampled_from(["ann", "bob"])
LEASES = st.builds(
    Lease,
    resource=st.just(RESOURCE),
    holder=AGENTS,
    session=st.just("s"),
    epoch=st.integers(1, 2),
    version=st.integers(1, 2),
)
HOLDERS = st.builds(
    Held,
    resource=st.just(RESOURCE),
    holder=AGENTS,
    session=st.sampled_from(["s", "t"]),
    epoch=st.integers(1, 2),
    version=st.integers(1, 2),
)
TRANSFERS = st.builds(
    Transfer,
    resource=st.just(RESOURCE),
    record=st.builds(
        TransferRecord,
        epoch=st.integers(1, 2),
        source=AGENTS,
        target=AGENTS,
        state=st.sampled_from(TransferState),
        since_ms=st.just(0),
    ),
    version=st.just(1),
)


def view_of(planned: str | None, held: Held | None, transfer: Transfer | None, lease: Lease | None) -> PlanView:
    def mirror(items: dict[str, object]) -> Mirror[object]:
        made: Mirror[object] = Mirror("", lambda entry: entry, Notify())
        made.items = items
        return made

    placements = ((), () if planned is None else (planned,))
    return PlanView(
        PlanMirrors(
            plan=mirror({PLANS + "orders": placements}),  # type: ignore[arg-type]
            holders=mirror({holder_key(RESOURCE): held} if held else {}),  # type: ignore[arg-type]
            moving=mirror({transfer_key(RESOURCE): transfer} if transfer else {}),  # type: ignore[arg-type]
            members=mirror({}),  # type: ignore[arg-type]
        ),
        {RESOURCE: lease} if lease else {},
        agent="ann",
        session="s",
        clock=FakeClock(),
        transfer_timeout_ms=1_000,
    )


@given(st.none() | AGENTS, st.none() | HOLDERS, st.none() | TRANSFERS, st.none() | LEASES)
def test_nothing_is_to_be_done_about_what_is_settled(
    planned: str | None, held: Held | None, transfer: Transfer | None, lease: Lease | None
) -> None:
    view = view_of(planned, held, transfer, lease)
    if view.is_settled(RESOURCE):
        assert decide(view.resource(RESOURCE)) is None


@pytest.mark.parametrize(("planned", "version", "settled"), [("ann", 1, True), ("bob", 1, False), ("ann", 2, False)])
def test_what_is_planned_for_us_and_ours_is_settled(planned: str, version: int, settled: bool) -> None:
    lease = Lease(resource=RESOURCE, holder="ann", session="s", epoch=1, version=1)
    held = Held(resource=RESOURCE, holder="ann", session="s", epoch=1, version=version)
    assert view_of(planned, held, None, lease).is_settled(RESOURCE) is settled
