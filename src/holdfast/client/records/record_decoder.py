"""librdkafka's messages as records, with keys and values as the application wants them."""

from typing import Any

from holdfast.client.records.model import DeserializationError, Record
from holdfast.client.records.serializers import Deserializer, deserializer


class RecordDecoder:
    """Deserializers by name or as functions."""

    def __init__(self, value_deserializer: str | Deserializer, key_deserializer: str | Deserializer) -> None:
        self._value, self._key = deserializer(value_deserializer, "value"), deserializer(key_deserializer, "key")

    def decode(self, message: Any) -> Record:
        """The record. `DeserializationError`."""
        value, key = message.value(), message.key()
        if self._value is not None and value is not None:
            value = _read(self._value, value, message, "value")
        if self._key is not None and key is not None:
            key = _read(self._key, key, message, "key")
        headers = message.headers()
        return Record(
            message.topic(),
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            key,
            value,
            () if headers is None else tuple(headers),
        )


def _read(read: Deserializer, data: bytes, message: Any, field: str) -> Any:
    try:
        return read(data)
    except Exception as error:
        raise DeserializationError(
            message.topic(), message.partition(), message.offset(), field, str(error) or type(error).__name__
        ) from error
