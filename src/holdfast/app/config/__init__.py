"""Settings of a server: one catalogue, five sources, one result with the origin of every value."""

from holdfast.app.config.catalog import CATALOGUE, Setting
from holdfast.app.config.effective import EffectiveSettings, effective_settings
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
]
