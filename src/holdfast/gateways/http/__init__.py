"""The HTTP gateway: administration of pipelines, health, metrics.

Litestar on uvicorn. Bodies are msgspec structs, validated while they are decoded; the OpenAPI document is generated from the same
types, so it cannot disagree with the code. Importing and building it takes most of a second, so that happens on a thread while the
sockets listen already.
"""
