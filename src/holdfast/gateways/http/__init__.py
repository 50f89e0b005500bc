"""HTTP for people and programs that administer: pipelines, health, metrics.

Litestar on uvicorn: msgspec structs are the bodies as they are stored, checked while they are decoded, and the OpenAPI document
comes from the same types, so that neither can disagree with the code. Importing and building it takes most of a second, so it
happens on a thread, beside a server that already listens.
"""
