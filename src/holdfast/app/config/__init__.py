"""How a server is told what to do: one catalogue of settings, five sources, one answer that knows where everything came from."""

from holdfast.app.config.catalog import CATALOGUE, Setting
from holdfast.app.config.effective import EffectiveSettings, effective_settings
from holdfast.app.config.redaction import redacted
from holdfast.app.config.settings import AGENT, API, ROLES, WORKER, EmbeddedSettings, ServeSettings

__all__ = [
    "AGENT",
    "API",
    "CATALOGUE",
    "ROLES",
    "WORKER",
    "EffectiveSettings",
    "EmbeddedSettings",
    "ServeSettings",
    "Setting",
    "effective_settings",
    "redacted",
]
