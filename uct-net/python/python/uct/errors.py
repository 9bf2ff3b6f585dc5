"""The exceptions of this package."""


class Error(Exception):
    """Why an operation between two processes failed.

    ``stage``, ``peer`` and ``reason`` are text; ``status`` is the name of a status, such as
    ``"CONNECTION_RESET"``; ``remedy`` says what to do, if that is known.
    """

    def __init__(self, stage, peer, status, reason, remedy=None):
        super().__init__(f"{stage} ({peer}): {reason}" + (f"; {remedy}" if remedy else ""))
        self.stage = stage
        self.peer = peer
        self.status = status
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self):
        return type(self), (self.stage, self.peer, self.status, self.reason, self.remedy)


class TimedOut(Error, TimeoutError):
    """An operation was not done within its limit. A connection goes on.

    Of a send: the message was withdrawn if nothing of it had left; what had begun to leave is delivered.
    """


class Closed(Error, EOFError):
    """The peer has closed the connection.

    Of a receive: everything that it had sent was received. A send may raise it while messages of the peer are
    unread: receives still return them.
    """
