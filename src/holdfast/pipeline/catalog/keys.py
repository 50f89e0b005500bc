"""Keys of pipelines in the store.

    pipeline/{id}                       the pipeline: name, state, generations, number of its newest revision
    pipeline-name/{folded name}         the pipeline that has a name
    pipeline-part/{id}/{part}           source, sink, mapping, filters, sql, drift as they were saved, each with its version
    pipeline-recipe/{id}/{version:08d}  a complete set of parts; never changed
    pipeline-replay/{id}                the replay of dead letters under way, and the number of steps
    pipeline-status/{id}/…              status of its slots, published by workers
    pipeline-gone/{id}                  marker of a deleted pipeline whose keys are being removed

Progress is in the registry (`holdfast.registry`): a namespace for each generation.
"""

from typing import Final

PIPELINES: Final = "pipeline/"
NAMES: Final = "pipeline-name/"
PARTS: Final = "pipeline-part/"
REVISIONS: Final = "pipeline-recipe/"
STATUS: Final = "pipeline-status/"
REPLAYS: Final = "pipeline-replay/"
DELETED: Final = "pipeline-gone/"
SECRET_PREFIXES: Final = (PARTS, REVISIONS)
"""Below which records hold secrets of users: they are sealed where there is a master key."""


def pipeline_key(pipeline_id: str) -> str:
    """A pipeline."""
    return PIPELINES + pipeline_id


def name_key(name: str) -> str:
    """A name; names that differ only in case are one name."""
    return NAMES + name.casefold()


def parts_prefix(pipeline_id: str) -> str:
    """All parts of a pipeline."""
    return f"{PARTS}{pipeline_id}/"


def part_key(pipeline_id: str, part: str) -> str:
    """One part."""
    return parts_prefix(pipeline_id) + part


def revisions_prefix(pipeline_id: str) -> str:
    """All revisions of a pipeline."""
    return f"{REVISIONS}{pipeline_id}/"


def revision_key(pipeline_id: str, version: int) -> str:
    """One revision."""
    return f"{revisions_prefix(pipeline_id)}{version:08d}"


def status_prefix(pipeline_id: str) -> str:
    """The status of a pipeline's slots."""
    return f"{STATUS}{pipeline_id}/"


def replay_key(pipeline_id: str) -> str:
    """The replay of a pipeline's dead letters."""
    return REPLAYS + pipeline_id


def deleted_key(pipeline_id: str) -> str:
    """A deleted pipeline."""
    return DELETED + pipeline_id
