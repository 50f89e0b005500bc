"""What is allowed at a place of a body, from its type: msgspec's errors only name what is wrong."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_NAMES: Final[dict[type[inspect.Type], str]] = {
    inspect.IntType: "an integer",
    inspect.FloatType: "a number",
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.NoneType: "null",
    inspect.BytesType: "base64",
}


def json_pointer(path: str) -> str:
    """`$.columns[0].type` as a JSON pointer in a fragment."""
    steps = (key or index for key, index in _STEP.findall(path))
    return "#" + "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def allowed_values_at(root: Any, path: str) -> str:
    """What a value of type `root` may have at `path`; empty if the type does not define it."""
    places: list[inspect.Type] = [*_alternatives(_type_info(root))]
    tags: list[str] = []
    for key, index in _STEP.findall(path):
        tags = [str(each.tag) for each in places if isinstance(each, inspect.StructType) and each.tag_field == key]
        places = [
            found for each in places for inner in _member_types(each, key, index) for found in _alternatives(inner)
        ]
    if tags:
        return _one_of(tags)
    return "; or ".join(dict.fromkeys(text for each in places if (text := _describe(each))))


@lru_cache(maxsize=256)
def _type_info(root: Any) -> inspect.Type:
    try:
        return inspect.type_info(root)
    except TypeError:
        return inspect.AnyType()


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _alternatives(each)
    else:
        yield kind


def _member_types(kind: inspect.Type, key: str, index: str) -> Iterable[inspect.Type]:
    if isinstance(kind, inspect.StructType) and key:
        return [field.type for field in kind.fields if field.encode_name == key]
    if isinstance(kind, inspect.DictType):
        return [kind.value_type]
    if isinstance(kind, (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)) and index:
        return [kind.item_type]
    return ()


def _describe(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.LiteralType):
        return _one_of(kind.values)
    if isinstance(kind, inspect.EnumType):
        return _one_of(each.value for each in kind.cls)
    if isinstance(kind, inspect.StructType):
        names = [str(kind.tag_field)] if kind.tag_field else []
        return "an object with " + ", ".join([*names, *(field.encode_name for field in kind.fields)])
    if isinstance(kind, inspect.DictType):
        return "an object"
    if isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        return "an array"
    return _NAMES.get(type(kind), "")


def _one_of(values: Iterable[object]) -> str:
    return "one of " + ", ".join(msgspec.json.encode(each).decode() for each in values)
