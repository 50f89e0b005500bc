"""The OpenAPI document, and an HTML page of it.

Litestar derives paths, parameters and bodies from the handlers. The rest is added here: every error response is a problem, and
bodies that a service decodes itself (`opt={"body": …}`) have the type the service decodes them into. Hot routes that encode their
own answers and read their own headers declare those in the same way.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cached_property
from typing import Any, Final

import msgspec
from litestar import Litestar
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Schema
from litestar.plugins import OpenAPISchemaPlugin
from litestar.typing import FieldDefinition

from holdfast import __version__
from holdfast.gateways.http.problems import PROBLEM_MEDIA_TYPE, Problem

TITLE: Final = "Holdfast"
_DESCRIPTION: Final = (
    "Administration of a Holdfast cluster. Every error is a problem (RFC 9457). "
    "Whatever can be edited has an ETag; send it as If-Match to make a change conditional on that version."
)
_REF: Final = "#/components/schemas/{name}"
_PLACEHOLDER: Final = "struct:"
# Components keep the names under which they were published: generated clients have classes called so.
_PUBLISHED_NAMES: Final = {"TopicSinkConfig": "TopicConfig", "ValidationCheck": "Check"}
_METHODS: Final = ("get", "put", "post", "patch", "delete")


class StructSchemaPlugin(OpenAPISchemaPlugin):
    """Schemas of request and response bodies from msgspec, which also decodes and encodes them."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    @staticmethod
    def is_plugin_supported_type(value: Any) -> bool:
        """Structs and dataclasses."""
        return isinstance(value, type) and (issubclass(value, msgspec.Struct) or is_dataclass(value))

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: object) -> Any:
        """A placeholder, which becomes a reference once all types are known."""
        kind = field_definition.annotation
        self.seen[kind.__name__] = kind
        return Schema(title=_PLACEHOLDER + kind.__name__)


class OpenApiDocument:
    """The document of all handlers, generated on first use: that takes as long as building the application."""

    def __init__(self, handlers: Sequence[HTTPRouteHandler], dependencies: Mapping[str, Provide]) -> None:
        self._handlers, self._dependencies = handlers, dependencies

    @cached_property
    def document(self) -> bytes:
        """`/openapi.json`."""
        return msgspec.json.encode(self._schema)

    @cached_property
    def page(self) -> bytes:
        """`/`: the same as HTML, without scripts."""
        return _render_page(self._schema).encode()

    @cached_property
    def _schema(self) -> dict[str, Any]:
        config = OpenAPIConfig(title=TITLE, version=__version__, description=_DESCRIPTION, use_handler_docstrings=True)
        structs = StructSchemaPlugin()
        application = Litestar(
            self._handlers,
            dependencies=dict(self._dependencies),
            openapi_config=config,
            plugins=[structs],
            logging_config=None,
        )
        document: dict[str, Any] = _with_references(
            msgspec.json.decode(msgspec.json.encode(application.openapi_schema.to_schema()))
        )
        bodies, answers = _declared_types(application, "body"), _declared_types(application, "answer")
        raw, headers = _declared_types(application, "media_types"), _declared_types(application, "header")
        kinds = [Problem, *bodies.values(), *answers.values(), *structs.seen.values()]
        _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if method in _METHODS:
                    _complete_operation(operation, bodies.get((path, method)), answers.get((path, method)))
                    if header := headers.get((path, method)):
                        parameter = {"name": header, "in": "header", "required": False, "schema": {"type": "string"}}
                        operation.setdefault("parameters", []).append(parameter)
                    if media_types := raw.get((path, method)):
                        content = {media: {"schema": {"type": "string"}} for media in media_types}
                        operation["requestBody"] = {"required": True, "content": content}
        return _with_published_names(document)


def _with_published_names(document: dict[str, Any]) -> dict[str, Any]:
    text = msgspec.json.encode(document)
    for name, published in _PUBLISHED_NAMES.items():
        for form in ('"{}"', _REF.replace("{name}", "{}") + '"'):  # as a key or a title, and as a reference
            text = text.replace(form.format(name).encode(), form.format(published).encode())
    renamed: dict[str, Any] = msgspec.json.decode(text)
    return renamed


def _declared_types(application: Litestar, what: str) -> dict[tuple[str, str], Any]:
    """What handlers declare in `opt`: types of bodies they do not decode and responses they do not annotate, media types."""
    return {
        (route.path_format, str(method).lower()): handler.opt[what]
        for route in application.routes
        for handler in getattr(route, "route_handlers", ())
        for method in handler.http_methods
        if what in handler.opt
    }


def _with_references(value: Any) -> Any:
    """The document with references instead of placeholders."""
    if isinstance(value, list):
        return [_with_references(each) for each in value]
    if not isinstance(value, dict):
        return value
    title = value.get("title")
    if isinstance(title, str) and title.startswith(_PLACEHOLDER):
        return {"$ref": _REF.format(name=title.removeprefix(_PLACEHOLDER))}
    return {name: _with_references(each) for name, each in value.items()}


def _complete_operation(operation: dict[str, Any], body: Any, answer: Any) -> None:
    refused = {
        "description": "A problem",
        "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }
    for status in [each for each in operation["responses"] if not each.startswith("2")]:
        operation["responses"][status] = {**refused, "description": operation["responses"][status]["description"]}
    operation["responses"]["default"] = refused
    operation["responses"].get("204", {}).pop("content", None)
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json_content(body)}
    if answer is not None:
        operation["responses"]["200"]["content"] = _json_content(answer)


def _json_content(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return {"application/json": {"schema": schema}}


def _render_page(document: dict[str, Any]) -> str:
    rows = []
    for path, operations in sorted(document["paths"].items()):
        for method in [each for each in _METHODS if each in operations]:
            operation = operations[method]
            description = operation.get("description") or operation.get("summary") or ""
            rows.append(
                f"<tr><td><b>{method.upper()}</b></td><td><code>{html.escape(path)}</code></td>"
                f"<td>{html.escape(operation.get('summary', ''))}</td><td>{html.escape(description)}</td></tr>"
            )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{TITLE}</title>"
        "<style>body{font:14px/1.5 system-ui,sans-serif;margin:2rem}td{padding:.3rem .8rem;border-top:1px solid #ddd;"
        "vertical-align:top}code{white-space:nowrap}</style>"
        f"<h1>{TITLE} {html.escape(__version__)}</h1><p>{html.escape(_DESCRIPTION)}</p>"
        '<p><a href="/openapi.json">openapi.json</a> · <a href="/metrics">metrics</a> · <a href="/ready">ready</a></p>'
        f"<table>{''.join(rows)}</table></html>"
    )
