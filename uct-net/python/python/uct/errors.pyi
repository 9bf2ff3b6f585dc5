class Error(Exception):
    stage: str
    peer: str
    status: str
    reason: str
    remedy: str | None
    def __init__(self, stage: str, peer: str, status: str, reason: str, remedy: str | None = None) -> None: ...

class TimedOut(Error, TimeoutError): ...
class Closed(Error, EOFError): ...
