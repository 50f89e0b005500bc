"""StreamHouse's environment variables, and one of Walrus's, as aliases of our settings. Ours win over them; they win over the file.

A variable that has no setting here is accepted and reported, so that an environment can be moved unchanged.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from holdfast.app.config.settings import API
from holdfast.app.config.sources import SourceValue
from holdfast.vocabulary.errors import InvalidError

_PLAIN: Final = {
    "KAFKA_ADDR": "kafka.listen",
    "HTTP_ADDR": "http.listen",
    "GRPC_ADDR": "grpc.listen",
    "DATABASE_URL": "store",
    "AGENT_ID": "agent.id",
    "AGENT_ZONE": "agent.zone",
    "AGENT_GROUP": "agent.group",
    "WALRUS_MAX_SEGMENT_ENTRIES": "text.rotation_entries",
}
_NOT_SERVED: Final = {
    "AGENT_ADDRESS": "agents are reached at their Kafka address, which KAFKA_ADVERTISED_HOST and _PORT set",
}
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("0", "false", "no", "off")


def from_aliases(environment: Mapping[str, str]) -> Iterator[SourceValue | InvalidError]:
    """The settings of StreamHouse's variables. Empty variables are ignored."""
    for variable, name in _PLAIN.items():
        if value := environment.get(variable):
            yield SourceValue(name, value, f"alias {variable}")
    host, port = environment.get("KAFKA_ADVERTISED_HOST", ""), environment.get("KAFKA_ADVERTISED_PORT", "")
    if host or port:
        origin = "/".join(
            name for name, value in (("KAFKA_ADVERTISED_HOST", host), ("KAFKA_ADVERTISED_PORT", port)) if value
        )
        shown = f"[{host}]" if ":" in host and port and not host.startswith("[") else host
        yield SourceValue("kafka.advertise", f"{shown}:{port}" if port else host, f"alias {origin}")
    if bucket := environment.get("STREAMHOUSE_BUCKET"):
        endpoint = environment.get("S3_ENDPOINT")
        url = f"s3://{bucket}" + (f"?endpoint={quote(endpoint, safe=':/')}" if endpoint else "")
        yield SourceValue("objects", url, "alias STREAMHOUSE_BUCKET" + ("/S3_ENDPOINT" if endpoint else ""))
    if disabled := environment.get("DISABLE_EMBEDDED_AGENT"):
        if disabled.lower() not in _YES + _NO:
            yield InvalidError("environment variable DISABLE_EMBEDDED_AGENT", disabled, "1, true, 0 or false")
        if disabled.lower() in _YES:
            yield SourceValue("roles", API, "alias DISABLE_EMBEDDED_AGENT")


def notices(environment: Mapping[str, str]) -> list[str]:
    """Variables that are accepted and have no effect."""
    found = [f"{variable} is set: {why}" for variable, why in _NOT_SERVED.items() if environment.get(variable)]
    if environment.get("S3_ENDPOINT") and not environment.get("STREAMHOUSE_BUCKET"):
        found.append("S3_ENDPOINT is set without STREAMHOUSE_BUCKET: give the endpoint in the --objects URL")
    return found
