"""The definitions: as buf lints them, generated as they stand, and never changed in a way that breaks a client."""

import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

ROOT = Path(__file__).parents[3]
SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
PASCAL = re.compile(r"([A-Z][a-z0-9]+)+")


def _generator() -> ModuleType:
    spec = spec_from_file_location("generate", ROOT / "proto" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()


@pytest.fixture(scope="module")
def files() -> list[FileDescriptorProto]:
    return list(FileDescriptorSet.FromString(GENERATOR.compiled(comments=True)).file)


def messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    waiting = [("", each) for each in file.message_type]
    while waiting:
        prefix, message = waiting.pop()
        if message.options.map_entry:
            continue
        yield prefix + message.name, message
        waiting += [(f"{prefix}{message.name}.", each) for each in message.nested_type]


def enums(file: FileDescriptorProto) -> Iterator[EnumDescriptorProto]:
    yield from file.enum_type
    for _, message in messages(file):
        yield from message.enum_type


def screaming(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


def faults(files: list[FileDescriptorProto]) -> list[str]:
    """What buf's categories STANDARD and COMMENTS would name."""
    found = []
    for file in files:
        if file.package != "holdfast.v1" or not file.name.startswith("holdfast/v1/"):
            found.append(f"{file.name}: the package is not that of its folder")
        if not SNAKE.fullmatch(Path(file.name).stem):
            found.append(f"{file.name}: not lower_snake_case")
        found += [f"{file.name}: {name}" for name in _message_faults(file)]
        for enum in enums(file):
            prefix = screaming(enum.name) + "_"
            if enum.value[0].name != f"{prefix}UNSPECIFIED" or enum.value[0].number:
                found.append(f"{enum.name}: its zero is not {prefix}UNSPECIFIED")
            found += [f"{enum.name}.{value.name}" for value in enum.value if not value.name.startswith(prefix)]
        for service in file.service:
            if not (PASCAL.fullmatch(service.name) and service.name.endswith("Service")):
                found.append(f"{service.name}: not a PascalCase name that ends with Service")
            for method in service.method:
                asked, answered = f".holdfast.v1.{method.name}Request", f".holdfast.v1.{method.name}Response"
                if (method.input_type, method.output_type) != (asked, answered):
                    found.append(f"{service.name}.{method.name}: request and response are not its own")
        found += [f"{file.name}: no comment at {path}" for path in _uncommented(file)]
    rpcs = [method.name for file in files for service in file.service for method in service.method]
    found += [f"{name} is the name of several rpcs" for name in sorted(set(rpcs)) if rpcs.count(name) > 1]
    return found


def _message_faults(file: FileDescriptorProto) -> Iterator[str]:
    for name, message in messages(file):
        if not PASCAL.fullmatch(message.name):
            yield f"{name} is not PascalCase"
        for each in (*(field.name for field in message.field), *(oneof.name for oneof in message.oneof_decl)):
            if not SNAKE.fullmatch(each.removeprefix("_")):
                yield f"{name}.{each} is not lower_snake_case"


def _uncommented(file: FileDescriptorProto) -> list[tuple[int, ...]]:
    """Messages, fields, enums and their values, services and rpcs without a comment, by their paths."""
    commented = {tuple(each.path) for each in file.source_code_info.location if each.leading_comments.strip()}
    wanted: list[tuple[int, ...]] = []
    for at, message in enumerate(file.message_type):
        wanted += [(4, at), *((4, at, 2, number) for number in range(len(message.field)))]
    for at, enum in enumerate(file.enum_type):
        wanted += [(5, at), *((5, at, 2, number) for number in range(len(enum.value)))]
    for at, service in enumerate(file.service):
        wanted += [(6, at), *((6, at, 2, number) for number in range(len(service.method)))]
    return [path for path in wanted if path not in commented]


def breaks(before: FileDescriptorSet, after: FileDescriptorSet) -> list[str]:
    """What a client of `before` would miss, or read as something else, as buf's category FILE has it."""
    new_messages = {(file.name, name): each for file in after.file for name, each in messages(file)}
    new_enums = {each.name: each for file in after.file for each in enums(file)}
    new_services = {each.name: each for file in after.file for each in file.service}
    found = []
    for file in before.file:
        for name, message in messages(file):
            now = new_messages.get((file.name, name))
            found += [f"{name} is gone"] if now is None else _changed_fields(name, message, now)
        for enum in enums(file):
            values = {each.number: each.name for each in new_enums.get(enum.name, EnumDescriptorProto()).value}
            found += [f"{enum.name}.{v.name} has changed" for v in enum.value if values.get(v.number) != v.name]
        for service in file.service:
            methods = {each.name: each for each in new_services.get(service.name, ServiceDescriptorProto()).method}
            found += [f"{service.name}.{m.name} has changed" for m in service.method if methods.get(m.name) != m]
    return found


def _changed_fields(name: str, before: DescriptorProto, after: DescriptorProto) -> list[str]:
    def facts(field: FieldDescriptorProto, of: DescriptorProto) -> tuple[object, ...]:
        oneof = of.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        return field.name, field.type, field.label, field.type_name, field.proto3_optional, oneof

    now = {field.number: facts(field, after) for field in after.field}
    return [f"{name}.{f.name} has changed" for f in before.field if now.get(f.number) != facts(f, before)]


def test_the_definitions_are_as_buf_wants_them(files: list[FileDescriptorProto]) -> None:
    assert faults(files) == []


def test_the_lint_names_what_is_wrong(files: list[FileDescriptorProto]) -> None:
    broken = FileDescriptorProto()
    broken.CopyFrom(next(file for file in files if file.service and file.message_type))
    broken.message_type[0].field[0].name = "camelCase"
    broken.service[0].name = "Topics"
    broken.service[0].method[0].output_type = ".holdfast.v1.Other"
    broken.message_type.add(name="Uncommented")
    assert len(faults([broken])) == 4


def test_what_is_generated_is_generated_from_the_definitions(tmp_path: Path) -> None:
    GENERATOR.generate(tmp_path)
    made = {each.name: each.read_text() for each in (tmp_path / "holdfast" / "v1").iterdir()}
    kept = {each.name: each.read_text() for each in (ROOT / "src/holdfast/v1").glob("*_pb2*") if each.is_file()}
    assert made == kept, "run `make proto`"


def test_nothing_that_was_released_is_taken_back() -> None:
    released = FileDescriptorSet.FromString((ROOT / "proto" / "holdfast.binpb").read_bytes())
    assert breaks(released, FileDescriptorSet.FromString(GENERATOR.compiled())) == []


def test_a_change_that_breaks_a_client_is_named() -> None:
    before, after = (FileDescriptorSet.FromString(GENERATOR.compiled()) for _ in range(2))
    (produce,) = [file for file in after.file if file.name.endswith("produce_service.proto")]
    (request,) = [each for each in produce.message_type if each.name == "ProduceRequest"]
    request.field[0].number = 99
    request.field[1].type = FieldDescriptorProto.TYPE_BYTES
    request.field.add(name="added", number=17, type=FieldDescriptorProto.TYPE_BOOL)
    produce.enum_type[0].value[1].name = "ACKS_MOST"
    produce.service[0].method[0].server_streaming = True
    del produce.service[0].method[1]
    assert len(breaks(before, after)) == 5
