"""References to secrets in parts of a pipeline: `${env:NAME}` and `${file:/path}`, resolved where the secret is used.

The one rule: what is resolved is never stored or shown, and only what the operator allows can be referred to: whoever edits
pipelines could otherwise read any variable and any file of the server.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.settings import KIB

_REFERENCE: Final = re.compile(r"\$\{(env|file):([^{}\s]+)\}")
_BEGUN: Final = re.compile(r"\$\{(?:env|file):")
_FILE_BYTES_MAX: Final = 64 * KIB
_MASK: Final = "secret-reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReferenceSettings:
    """What pipelines may refer to. Empty: nothing of that kind."""

    env_prefix: str = "HOLDFAST_SECRET_"
    """Variables whose names begin with it."""
    secret_dir: str = ""
    """Files below this folder."""

    def __post_init__(self) -> None:
        if self.secret_dir and not Path(self.secret_dir).is_absolute():
            raise InvalidError("secret_dir", self.secret_dir, "an absolute path")

    def check(self, what: str, text: str) -> None:
        """`InvalidError`: the text has a reference that is not allowed, or is malformed."""
        if len(_BEGUN.findall(text)) != len(found := _REFERENCE.findall(text)):
            raise InvalidError(what, "…", "${env:NAME} or ${file:/path}, without braces and spaces in it")
        for kind, name in found:
            self._check_one(what, kind, name)

    def _check_one(self, what: str, kind: str, name: str) -> None:
        shown = f"${{{kind}:{name}}}"
        if kind == "env":
            if not self.env_prefix:
                raise InvalidError(
                    what, shown, "another secret: pipelines.env_prefix is empty, so no variable is allowed"
                )
            if not name.startswith(self.env_prefix):
                raise InvalidError(
                    what, shown, f"a variable whose name begins with {self.env_prefix} (pipelines.env_prefix)"
                )
            return
        if not self.secret_dir:
            raise InvalidError(what, shown, "another secret: pipelines.secret_dir is not set, so no file is allowed")
        path = Path(name)
        if not path.is_absolute() or ".." in path.parts or not path.is_relative_to(self.secret_dir):
            raise InvalidError(what, shown, f"a file below {self.secret_dir} (pipelines.secret_dir)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReferences:
    """Resolves references in the process that uses the secrets. `environment`: the variables of that process."""

    settings: SecretReferenceSettings = field(default_factory=SecretReferenceSettings)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def resolve(self, what: str, text: str, *, in_url: bool = False) -> str:
        """The text with its secrets, escaped within a URL. `InvalidError`: not allowed. `UnavailableError`: not there."""
        if "${" not in text:
            return text
        self.settings.check(what, text)

        def secret(found: re.Match[str]) -> str:
            value = self._variable(found[2]) if found[1] == "env" else self._file(found[2])
            return quote(value, safe="") if in_url and found[0] != text else value

        return _REFERENCE.sub(secret, text)

    def _variable(self, name: str) -> str:
        if name not in self.environment:
            raise UnavailableError(f"secret ${{env:{name}}}", "the server's environment has no such variable")
        return self.environment[name]

    def _file(self, name: str) -> str:
        reference, path = f"secret ${{file:{name}}}", Path(name)
        try:
            # Where links lead counts: a link below the folder must not lead out of it.
            if not path.resolve(strict=True).is_relative_to(Path(self.settings.secret_dir).resolve()):
                raise UnavailableError(reference, "it is a link out of pipelines.secret_dir")
            with path.open("rb") as file:
                data = file.read(_FILE_BYTES_MAX + 1)
            if len(data) > _FILE_BYTES_MAX:
                raise UnavailableError(reference, f"it has more than {_FILE_BYTES_MAX} bytes")
            return data.decode().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UnavailableError(reference, reason or "it cannot be read") from None


def is_reference(text: str) -> bool:
    """Whether the whole text is one reference: it is no secret itself."""
    return _REFERENCE.fullmatch(text) is not None


def masked(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with a word for each reference, so that a URL can be split; and the references."""
    return _REFERENCE.sub(_MASK, text), tuple(found[0] for found in _REFERENCE.finditer(text))


def is_mask(text: str | None) -> bool:
    """Whether this stands for a reference in a masked text."""
    return text == _MASK


def unmasked(text: str, references: tuple[str, ...]) -> str:
    """The references in their places again."""
    for reference in references:
        text = text.replace(_MASK, reference, 1)
    return text
