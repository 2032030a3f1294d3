"""Echo for mlxfill: what stood earlier in the session is proposed again.

``forget_session`` and ``forget_all_sessions`` erase what is remembered between requests.
"""

from mlxfill_fill_echo.memory import Memory
from mlxfill_fill_echo.sessions import SESSIONS, Sessions
from mlxfill_fill_echo.settings import EchoSettings
from mlxfill_fill_echo.source import EchoSource

__all__ = [
    "EchoSettings",
    "EchoSource",
    "Memory",
    "Sessions",
    "forget_all_sessions",
    "forget_session",
    "remembered_sessions",
]

forget_session = SESSIONS.forget
forget_all_sessions = SESSIONS.forget_all
remembered_sessions = SESSIONS.sizes
