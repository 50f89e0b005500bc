"""A proposal from a sample, corrected by what the schema of its records declares. See `formats.declared_fields`.

The one rule: every record of the sample still fits.
"""

from dataclasses import replace

from holdfast.clickhouse.types import STRING, Array, Decimal, Map, Type, nullable, parse_type, unwrap
from holdfast.pipeline.formats.declared_fields import Declared, DeclaredField
from holdfast.pipeline.mapping.inference import Evidence, Proposal, propose_order
from holdfast.pipeline.model.column_mapping import Column, Mapping, make_column


def with_declared(found: Proposal, declared: Declared) -> Proposal:
    """The proposal with declared nulls and types."""
    if not declared:
        return found
    corrected = [
        _corrected(column, evidence, declared.get(column.field_path))
        for column, evidence in zip(found.mapping.columns, found.evidence, strict=True)
    ]
    columns = tuple(column for column, _ in corrected)
    return replace(
        found,
        mapping=Mapping(columns, found.mapping.version, found.mapping.ignored),
        order_by=propose_order(columns),
        evidence=tuple(evidence for _, evidence in corrected),
    )


def _corrected(column: Column, evidence: Evidence, declared: DeclaredField | None) -> tuple[Column, Evidence]:
    if declared is None:
        return column, evidence
    kind, why = _type(column.kind, evidence, declared), evidence.why
    if kind != column.kind:
        why += f"; the schema says {declared.type}"
    if declared.nullable and not column.nullable and not isinstance(kind, Array | Map):
        kind, why = nullable(kind), f"{why}; the schema says that it may be null"
    if kind == column.kind:
        return column, evidence
    made = make_column(column.field_path, column.column, kind, when_null=column.when_null)
    return made, replace(evidence, type=str(kind), why=why)


def _type(kind: Type, evidence: Evidence, declared: DeclaredField) -> Type:
    """The declared type, where no value was seen or a decimal has its digits; as nullable as before."""
    unseen = not evidence.seen and unwrap(kind) == STRING
    decimal = declared.exact and isinstance(unwrap(kind), Decimal)
    if not declared.type or not (unseen or decimal):
        return kind
    wanted = parse_type(declared.type)
    return nullable(wanted) if evidence.nulls or evidence.absent else wanted
