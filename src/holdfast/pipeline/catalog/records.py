"""Pipelines as records of a store: read, and changed by compare-and-swap.

The one rule: every change is one commit that requires the pipeline's record as it was read. What is read here holds secrets: see
`secrets.redacted`.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import Swap, compare_and_swap
from holdfast.contracts.store import Committed, Conflict, Entry, Operation, Put, Requirement, Store
from holdfast.contracts.validation import prefix_end
from holdfast.pipeline.catalog import edits, stored_parts, watch
from holdfast.pipeline.catalog.keys import PIPELINES, name_key, parts_prefix, pipeline_key, revision_key
from holdfast.pipeline.catalog.settings import CatalogSettings
from holdfast.pipeline.catalog.stored_parts import StoredPart
from holdfast.pipeline.model.definition import Pipeline, Revision
from holdfast.pipeline.model.errors import UnknownPipelineError
from holdfast.pipeline.model.secret_references import SecretReferenceSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A change: the pipeline after it, and what is committed with it."""

    pipeline: Pipeline
    require: Sequence[Requirement] = ()
    apply: Sequence[Operation] = ()


class PipelineRecords:
    """The pipelines of a store, as they are stored. `store.PipelineStore` knows what may be done to them."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        random: Random,
        settings: CatalogSettings | None = None,
        references: SecretReferenceSettings | None = None,
    ) -> None:
        """`references`: what parts may refer to."""
        self.settings = settings or CatalogSettings()
        self._references = references or SecretReferenceSettings()
        self._store, self._clock, self._random = store, clock, random

    async def get(self, pipeline_id: str) -> Pipeline:
        """The pipeline. `UnknownPipelineError`."""
        return stored_parts.pipeline_of(await self._entry(pipeline_id))

    async def find(self, id_or_name: str) -> Pipeline:
        """The pipeline with this id or name. `UnknownPipelineError`."""
        entry = await self._found(id_or_name)
        if entry is None and stored_parts.is_valid_name(id_or_name):
            named = await self._store.get(name_key(stored_parts.validated_name(id_or_name)))
            if named is not None:
                entry = await self._found(msgspec.json.decode(named.value, type=dict[str, str])["id"])
        if entry is None:
            raise UnknownPipelineError(id_or_name)
        return stored_parts.pipeline_of(entry)

    async def list(self) -> Sequence[Pipeline]:
        """Every pipeline, by name."""
        return stored_parts.pipelines_of((await self._store.scan(PIPELINES, prefix_end(PIPELINES))).entries)

    async def parts(self, pipeline_id: str) -> dict[str, StoredPart]:
        """The saved parts by name, with their secrets."""
        await self._entry(pipeline_id)
        return await self._parts(pipeline_id)

    async def revision(self, pipeline_id: str, version: int) -> Revision:
        """A revision of a pipeline, with its secrets. `InvalidError` if it is not kept any more."""
        entry = await self._store.get(revision_key(pipeline_id, version)) if version > 0 else None
        if entry is None:
            pipeline = await self.get(pipeline_id)
            allowed = f"at most {pipeline.revision}, and one that is still kept"
            raise InvalidError(f"revision of pipeline {pipeline.name!r}", version, allowed)
        return stored_parts.revision_of(entry)

    async def watch(self) -> AsyncGenerator[Sequence[Pipeline], None]:
        """All pipelines now, and again after each commit that changed one. Close it (`contextlib.aclosing`).

        Waits while the store is unavailable.
        """
        async with aclosing(watch.pipelines(self._store, clock=self._clock, random=self._random)) as seen:
            async for pipelines in seen:
                yield pipelines

    async def _change(
        self, pipeline_id: str, decide: Callable[[Pipeline], Awaitable[CatalogChange]], expected: int | None = None
    ) -> Pipeline:
        """Commit what `decide` returns for the pipeline, deciding again whenever another change came first."""

        async def swap(entry: Entry | None) -> Swap[Pipeline]:
            if entry is None:
                raise UnknownPipelineError(pipeline_id)
            before = stored_parts.pipeline_of(entry)
            write = await decide(before)
            if write.pipeline == before and not write.apply:
                return Swap(before)
            edits.check_expected(f"pipeline {before.name!r}", expected, before.version)
            after = msgspec.structs.replace(
                write.pipeline, version=before.version + 1, updated_at_ms=self._clock.now_ms()
            )
            return Swap(after, [Put(entry.key, stored_parts.pipeline_value(after)), *write.apply], write.require)

        known = await self._entry(pipeline_id)
        pipeline, _ = await compare_and_swap(
            self._store, known.key, swap, clock=self._clock, random=self._random, known=known
        )
        return pipeline

    async def _parts(self, pipeline_id: str) -> dict[str, StoredPart]:
        prefix = parts_prefix(pipeline_id)
        scan = await self._store.scan(prefix, prefix_end(prefix))
        found = (stored_parts.part_of(entry) for entry in scan.entries)
        return {part.name: part for part in found if part is not None}

    async def _entry(self, pipeline_id: str) -> Entry:
        entry = await self._found(pipeline_id)
        if entry is None:
            raise UnknownPipelineError(pipeline_id)
        return entry

    async def _found(self, pipeline_id: str) -> Entry | None:
        plain = pipeline_id.isascii() and pipeline_id.isalnum() and len(pipeline_id) <= 64
        return await self._store.get(pipeline_key(pipeline_id)) if plain else None

    async def _commit(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> Committed | Conflict:
        return await commit_resolved(self._store, clock=self._clock, random=self._random, require=require, apply=apply)
