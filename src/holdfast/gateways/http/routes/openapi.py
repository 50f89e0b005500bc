"""What this server can do: the OpenAPI document, and a page for people."""

import asyncio

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from holdfast.gateways.http.openapi import OpenApiDocument

DocumentDependency = NamedDependency[SkipValidation[OpenApiDocument]]


@get("/openapi.json", tags=["about"], summary="This document", media_type="application/json")
async def openapi(document: DocumentDependency) -> Response[bytes]:
    """Every route with what it takes and gives, as OpenAPI 3.1."""
    body = await asyncio.to_thread(lambda: document.document)
    return Response(body, media_type="application/json")


@get("/", tags=["about"], summary="Every route, for people", media_type="text/html")
async def page(document: DocumentDependency) -> Response[bytes]:
    """One page, made from the document."""
    body = await asyncio.to_thread(lambda: document.page)
    return Response(body, media_type="text/html")


HANDLERS = (openapi, page)
