"""The API reference: the OpenAPI document, and an HTML page of it."""

import asyncio

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from holdfast.gateways.http.openapi import OpenApiDocument

DocumentDependency = NamedDependency[SkipValidation[OpenApiDocument]]


@get("/openapi.json", tags=["reference"], summary="OpenAPI document", media_type="application/json")
async def openapi(document: DocumentDependency) -> Response[bytes]:
    """Every route with its request and response, as OpenAPI 3.1."""
    body = await asyncio.to_thread(lambda: document.document)
    return Response(body, media_type="application/json")


@get("/", tags=["reference"], summary="API reference page", media_type="text/html")
async def page(document: DocumentDependency) -> Response[bytes]:
    """An HTML page of the document."""
    body = await asyncio.to_thread(lambda: document.page)
    return Response(body, media_type="text/html")


HANDLERS = (openapi, page)
