"""Write docs/reference/python.md from the docstrings of the public names. A tool of developers, not shipped.

python docs/generate_reference.py           # write the page
python docs/generate_reference.py --check   # exit code 1 if the page is not current
"""

import argparse
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.testing import ObjectsHarness, StoreHarness
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

PAGE = Path(__file__).parent / "reference" / "python.md"
MODULES = (
    "holdfast",
    "holdfast.registry",
    "holdfast.client",
    "holdfast.client.sync",
    "holdfast.heaps",
    "holdfast.heaps.sync",
    "holdfast.spark",
    "holdfast.spark.clickhouse",
    "holdfast.testing",
)
CONTRACTS = (Store, Objects, Clock, Random, ObjectsHarness, StoreHarness)
_HEAD = """# Python reference

Generated from docstrings by `python docs/generate_reference.py`. What is not listed here is private.
"""


def public_names(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Every name a module exports, functions first. Modules have sections of their own."""
    exported = [(name, getattr(module, name)) for name in module.__all__ if not name.startswith("__")]
    for name, found in sorted(exported, key=lambda each: not inspect.isfunction(each[1])):
        if not inspect.ismodule(found):
            yield name, found


def public_members(kind: type) -> Iterator[tuple[str, object]]:
    """The methods and properties a user may call: those of our own classes, in the order they are written."""
    seen: set[str] = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("holdfast"):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") or name in seen:
                continue
            if isinstance(member, FunctionType | property | classmethod | staticmethod):
                seen.add(name)
                yield name, member


def docstring(thing: object) -> str:
    """Its own docstring; a generated one (a dataclass's signature) and an inherited one do not count."""
    text = getattr(thing, "__doc__", None) or ""
    if inspect.isclass(thing) and (text.startswith(f"{thing.__name__}(") or "__doc__" not in vars(thing)):
        return ""
    return inspect.cleandoc(text)


def render() -> str:
    """The whole page."""
    sections = [_HEAD]
    for name in MODULES:
        module = import_module(name)
        sections.append(f"## `{name}`\n\n{inspect.cleandoc(module.__doc__ or '')}\n")
        sections += [_entry(name, public, found) for public, found in public_names(module)]
    return "\n".join(sections)


def _entry(module: str, name: str, found: object) -> str:
    title = f"### `{module}.{name}`\n"
    if inspect.isclass(found):
        return f"{title}\n{_class(found)}"
    if inspect.isfunction(found):
        return f"{title}\n{_code(f'{_prefix(found)}{name}{_signature(found)}')}\n{docstring(found)}\n"
    return f"{title}\n{_code(f'{name} = {_shown(found)}')}"


def _class(kind: type) -> str:
    parts = []
    if dataclasses.is_dataclass(kind) or (issubclass(kind, Exception) and kind.__init__ is not Exception.__init__):
        parts.append(_code(f"{kind.__name__}{_signature(kind)}"))
    parts.append(f"{docstring(kind)}\n")
    for name, member in public_members(kind):
        if isinstance(member, property):
            returned = inspect.signature(member.fget).return_annotation if member.fget is not None else ""
            parts.append(f"- **`{name}: {_shown(returned)}`** {_indented(method_docstring(kind, name))}")
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        assert isinstance(function, FunctionType)
        parts.append(
            f"- **`{_prefix(function)}{name}{_signature(function)}`** {_indented(method_docstring(kind, name))}"
        )
    return "\n".join(parts) + "\n"


def method_docstring(kind: type, name: str) -> str:
    """A method's docstring, or that of the contract the class implements: it is described there alone."""
    text = inspect.getdoc(getattr(kind, name))
    contracts = (each for each in CONTRACTS if all(hasattr(kind, member) for member, _ in public_members(each)))
    described = (inspect.getdoc(getattr(each, name, None)) for each in contracts if hasattr(each, name))
    return text or next(filter(None, described), "")


def _prefix(function: FunctionType) -> str:
    asynchronous = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    return "async " if asynchronous else ""


def _signature(found: FunctionType | type) -> str:
    signature = inspect.signature(found)
    given = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    returned = signature.return_annotation
    if inspect.isclass(found) or returned is None:
        returned = inspect.Signature.empty
    shown = _shorten(str(signature.replace(parameters=given, return_annotation=returned)))
    if hasattr(found, "__wrapped__"):  # written as a generator under `asynccontextmanager`
        shown = shown.replace("-> AsyncIterator[", "-> AbstractAsyncContextManager[")
    return shown


def _shown(annotation: object) -> str:
    return _shorten(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def _shorten(text: str) -> str:
    """Names without their modules, no addresses in memory, nothing of this machine."""
    text = text.replace(sys.executable, "…")
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text)
    return re.sub(r"<factory>|<function \w+ at 0x\w+>", "…", text).replace("'", "")


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _code(text: str) -> str:
    return f"```\n{text}\n```\n"


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is not current")
    page = render()
    if parser.parse_args().check:
        return int(not PAGE.exists() or PAGE.read_text() != page)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
