"""The classes of ``uct`` for asyncio: each call is awaited.

An operation begins when it is awaited. One that is done at once does not suspend its task.
"""

from ._uct import AioConnection as Connection
from ._uct import AioListener as Listener
from ._uct import AioNet as Net
from ._uct import AioTransfer as Transfer
from ._uct import Operation
from .errors import Closed, Error, TimedOut

__all__ = ["Closed", "Connection", "Error", "Listener", "Net", "Operation", "TimedOut", "Transfer"]
