"""What batches, former owners and retired generations leave behind, removed by the owner that runs.

The one rule: an owner removes what is older than itself, by name. It may be a zombie: what a newer owner has made is never touched,
and no list is taken to be complete. The objects must still be this store's: another history of it has other pipelines.
"""

from collections.abc import Callable

from holdfast.pipeline.driver.slot_store import SlotStore
from holdfast.pipeline.driver.streaming import protocol
from holdfast.pipeline.driver.streaming.pieces import delete_pieces
from holdfast.pipeline.driver.streaming.running_query import RunningStream


def release_committed(running: RunningStream) -> None:
    """Let retention go on, once Spark has committed the last done batch: nothing of it is read again."""
    record = running.store.record
    done = None if record.intent is not None or not record.retain else record.done
    if done is not None and running.folders.has_committed(running.epoch, done.batch):
        running.store.update(lambda now: protocol.committed(now) if now.done == done else now)


def remove_leftovers(
    running: RunningStream, store: SlotStore, objects: str, prefix: str, check_owner: Callable[[], None]
) -> None:
    """Checkpoints and pieces of older epochs, of retired generations and of deleted pipelines, unless `check_owner` raises."""
    check_owner()
    record, pieces = running.store.record, f"{prefix}pieces/"
    begun = record.intent
    kept = {piece.key for piece in (*begun.pieces, *begun.refused)} if begun is not None else set()
    running.folders.remove_older(running.epoch)
    delete_pieces(
        objects, pieces, doomed=lambda key: key not in kept and protocol.epoch_of_piece(key, pieces) < running.epoch
    )
    pipeline = store.pipeline()
    live = {each.number for each in pipeline.generations if not each.retired}
    for name in running.folders.siblings(levels=1):
        if name.isdecimal() and int(name) < pipeline.generations[-1].number and int(name) not in live:
            running.folders.remove_sibling(name, levels=1)
    for name in running.folders.siblings(levels=2):
        if not store.exists(name):
            check_owner()
            running.folders.remove_sibling(name, levels=2)
