"""Workers on the memory store under a fake clock: who takes what, and what happens when somebody goes."""

from tests.pipeline.workers.conftest import World


async def test_a_started_pipeline_is_worked_on(world: World) -> None:
    await world.pipeline("p")
    [ann] = world.hire("ann")
    await world.until(lambda: len(world.acting()) == 4)
    assert await world.holders("p") == {0: "ann"}
    assert await world.owners("p") == dict.fromkeys(range(4), "0")
    assert ann.driver.claims["p.1.0"].epochs == {"0": 1, "1": 1, "2": 1, "3": 1}
