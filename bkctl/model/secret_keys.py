"""Which configuration values are not shown: those of keys whose names say that they hold a secret.

Flags and the subscription type Key_Shared are not secrets and are shown. Applied wherever a value of a
configuration is printed, logged or sent.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "*****"
_SECRET: Final = re.compile("passw|secret|token|key|param|credential", re.IGNORECASE)
_KEY_SHARED: Final = re.compile("key_?shared", re.IGNORECASE)
_SHOWN: Final = ("", "true", "false")


def masked(key: str, text: str) -> str:
    """The value, or MASK if the key's name contains password, secret, token, key, params or credentials."""
    if text.strip().lower() in _SHOWN or not _SECRET.search(_KEY_SHARED.sub("", key)):
        return text
    return MASK
