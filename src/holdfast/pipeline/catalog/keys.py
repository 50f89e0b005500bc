"""Where pipelines are kept in the store.

    pipeline/{id}                       the pipeline: name, state, generations, the number of its newest recipe
    pipeline-name/{folded name}         which pipeline has a name
    pipeline-part/{id}/{part}           source, sink, mapping, filters, sql, drift as they were saved, each with its version
    pipeline-recipe/{id}/{version:08d}  a complete set of parts; never changed
    pipeline-replay/{id}                which rejected rows are being replayed, and how often that was done
    pipeline-status/{id}/…              what workers say of its slots
    pipeline-gone/{id}                  a deleted pipeline of which something is left to be removed

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


def pipeline_key(pipeline_id: str) -> str:
    """A pipeline."""
    return PIPELINES + pipeline_id


def name_key(name: str) -> str:
    """Whose name this is; names that differ only in capitals are one name."""
    return NAMES + name.casefold()


def parts_prefix(pipeline_id: str) -> str:
    """All parts of a pipeline."""
    return f"{PARTS}{pipeline_id}/"


def part_key(pipeline_id: str, part: str) -> str:
    """One part."""
    return parts_prefix(pipeline_id) + part


def revisions_prefix(pipeline_id: str) -> str:
    """All recipes of a pipeline that are still kept."""
    return f"{REVISIONS}{pipeline_id}/"


def revision_key(pipeline_id: str, version: int) -> str:
    """One recipe."""
    return f"{revisions_prefix(pipeline_id)}{version:08d}"


def status_prefix(pipeline_id: str) -> str:
    """What workers say of a pipeline."""
    return f"{STATUS}{pipeline_id}/"


def replay_key(pipeline_id: str) -> str:
    """The replay of a pipeline's DLQ that is under way."""
    return REPLAYS + pipeline_id


def deleted_key(pipeline_id: str) -> str:
    """A deleted pipeline."""
    return DELETED + pipeline_id
