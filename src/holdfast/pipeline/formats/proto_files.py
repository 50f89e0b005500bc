"""Files of Protobuf definitions, compiled at run time to message classes. Needs `grpcio-tools` and `protobuf` (extra `formats`).

The one rule: the compiler is Google's own, in a process of its own, and reads nothing but the given files and those that come with
it. What it refuses is a fault of the definition; that it does not run is not.
"""

import base64
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from holdfast.pipeline.formats.decoded import BadValueError
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.installation import NotInstalledError

COMPILER_TIMEOUT_S: Final = 60
MAIN_FILE: Final = "holdfast_value.proto"
ERROR_CHARS_MAX: Final = 500


class ProtoFile:
    """A compiled file with what it imports: descriptors, each after those it depends on."""

    def __init__(self, files: Sequence[Any], main: str) -> None:
        from google.protobuf import descriptor_pool

        self._pool = descriptor_pool.DescriptorPool()
        try:
            for each in files:
                self._pool.Add(each)
            self._file = self._pool.FindFileByName(main)
        except (TypeError, KeyError) as error:
            raise BadValueError(f"the Protobuf schema is incomplete: {error}") from None

    def message_at(self, indexes: Sequence[int]) -> Any:
        """The descriptor of a message by its indexes from the outermost in. `BadValueError`: there is none."""
        messages: Sequence[Any] = list(self._file.message_types_by_name.values())
        found: Any = None
        for index in indexes:
            found = _message(messages, index)
            if found is None:
                raise BadValueError(f"unknown message indexes {list(indexes)}: the schema has no such message")
            messages = found.nested_types
        return found

    def message_named(self, name: str) -> Any:
        """The descriptor of a message by its full name. `BadValueError`: there is none."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise BadValueError(f"unknown message {name!r}: the schema does not define it") from None


def _message(messages: Sequence[Any], index: int) -> Any | None:
    """One of several messages. The entries of maps are messages, too; Java's serializer does not count them, the others do."""
    found = messages[index] if 0 <= index < len(messages) else None
    if found is not None and not found.GetOptions().map_entry:
        return found
    declared = [each for each in messages if not each.GetOptions().map_entry]
    return declared[index] if 0 <= index < len(declared) else None


def compile_proto(text: str, references: Sequence[tuple[str, str]] = ()) -> ProtoFile:
    """Compile a file; `references` are the files it imports, by name. `BadValueError`: the compiler refuses it.

    Python's serializer registers descriptors in base64, which some registries return as they are.
    """
    _check_installed()
    from google.protobuf import descriptor_pb2

    if (main := _serialized(text)) is not None:
        files = [main]
        for name, content in references:
            if (file := _serialized(content)) is None:
                raise BadValueError(f"the imported file {name[:200]!r} is not in the form of the file that imports it")
            files.insert(-1, file)
        return ProtoFile([*_well_known(files), *files], main.name)
    with TemporaryDirectory(prefix="holdfast-proto-") as folder:
        root = Path(folder) / "files"
        for name, content in ((MAIN_FILE, text), *references):
            file = root / _safe(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, "utf-8")
        out = Path(folder) / "descriptors"
        _run_compiler(root, out)
        compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return ProtoFile(compiled.file, MAIN_FILE)


def _check_installed() -> None:
    for module in ("google.protobuf", "grpc_tools"):
        if find_spec(module) is None:
            raise NotInstalledError("format protobuf", module, "formats")


def _serialized(text: str) -> Any | None:
    """The file descriptor that a text is the base64 of; None: it is a definition."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    return found if found.name else None


def _well_known(files: Sequence[Any]) -> list[Any]:
    """Descriptors of Google's own files that these import, each after those it depends on."""
    found: dict[str, Any] = {}
    have = {file.name for file in files}

    def add(name: str) -> None:
        if name in have or name in found or not name.startswith("google/protobuf/"):
            return
        try:
            module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            return
        file = type(files[0])()
        module.DESCRIPTOR.CopyToProto(file)
        for dependency in file.dependency:
            add(dependency)
        found[name] = file

    for file in files:
        for dependency in file.dependency:
            add(dependency)
    return list(found.values())


def _safe(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise BadValueError(f"invalid name of an imported file {name[:200]!r}: must be a relative path")
    return path


def _run_compiler(root: Path, out: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"-I{_own_files()}", "--include_imports"]
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter, arguments of ours)
            [*command, f"--descriptor_set_out={out}", str(root / MAIN_FILE)],
            capture_output=True,
            timeout=COMPILER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError("the Protobuf compiler", str(error)) from None
    if done.returncode == 1 and MAIN_FILE.encode() in done.stderr + done.stdout:
        reason = done.stderr.decode("utf-8", "replace").replace(f"{root}/", "").strip()[:ERROR_CHARS_MAX]
        raise BadValueError(f"the Protobuf schema cannot be compiled: {reason}")
    if done.returncode != 0 or not out.exists():
        raise UnavailableError("the Protobuf compiler", done.stderr.decode("utf-8", "replace")[-ERROR_CHARS_MAX:])


def _own_files() -> Path:
    """Google's well-known types, which come with the compiler."""
    import grpc_tools

    return Path(str(grpc_tools.__file__)).parent / "_proto"
