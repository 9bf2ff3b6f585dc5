"""Connections by address, messages and remote memory, over shared memory, TCP, InfiniBand and RoCE.

Each call of this module blocks the calling thread, and no other one. ``uct.aio`` has the same names for asyncio.
"""

import atexit

from . import _uct, aio
from ._uct import Connection, Listener, Memory, Net, Receipt, RemoteMemory, Transfer
from .errors import Closed, Error, TimedOut

__all__ = [
    "Closed",
    "Connection",
    "Error",
    "Listener",
    "Memory",
    "Net",
    "Receipt",
    "RemoteMemory",
    "TimedOut",
    "Transfer",
    "aio",
]

# What was sent last is delivered before the interpreter ends.
atexit.register(_uct.close_all)
