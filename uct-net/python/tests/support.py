"""What tests share: pairs of connections, and processes with a limit."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import uct

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
#: For a machine on which nothing gets a processor for long.
LIMIT = 60.0
PATIENT = {"handshake_timeout": LIMIT / 2, "lane_timeout": LIMIT / 3, "connect_timeout": LIMIT}

# What was started in the background ignores it, and its children would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

try:
    import numpy
except ImportError:
    numpy = None

with_numpy = unittest.skipUnless(numpy, "NumPy is not installed")


@contextlib.contextmanager
def pair(transport="posix", **settings):
    """Two connected ends in this process, each of a net of its own."""
    settings = {"require": transport, **PATIENT, **settings}
    with uct.Net(**settings) as left, uct.Net(**settings) as right:
        with left.listen("127.0.0.1:0") as listener:
            accepted = []
            accepting = threading.Thread(target=lambda: accepted.append(listener.accept(LIMIT)))
            accepting.start()
            there = right.connect(listener.address)
            accepting.join(LIMIT)
        with accepted[0] as here, there:
            yield left, here, right, there


def program(*arguments, **environment):
    """A process of the same Python, whose output is read."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        # Later versions of Python warn of a fork while there are threads.
        env={**os.environ, "PYTHONWARNINGS": "ignore", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def code(text, *arguments, **environment):
    """As `program`, for a program given as text."""
    return program("-c", text, *arguments, **environment)


def finish(process):
    """The exit code and the rest of its output."""
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        return None, f"did not end:\n{output}"
    return process.returncode, output
