"""URLs as they may be shown: without passwords, keys and tokens, whatever the URL is and however wrong it is."""

import re
from typing import Final

_USER_INFO: Final = re.compile(r"//([^/?#@:]*)(:[^/?#]*)?@")  # up to the last @: a password may hold one
_OPTION: Final = re.compile(r"([?&;])([^=&;?#]+)=([^&;#]*)")
_SECRET: Final = re.compile(r"pass|pwd|secret|key|token|credential|sig|auth|sas", re.IGNORECASE)


def redacted(url: str) -> str:
    """The URL with its secrets as ***. A user's name stays, unless it stands alone: then it may be a token."""
    shown = _USER_INFO.sub(lambda found: f"//{found[1]}:***@" if found[2] is not None else "//***@", url, count=1)
    return _OPTION.sub(lambda found: f"{found[1]}{found[2]}={_shown(found[2], found[3])}", shown)


def _shown(name: str, value: str) -> str:
    return "***" if _SECRET.search(name) else _USER_INFO.sub("//***@", value)
