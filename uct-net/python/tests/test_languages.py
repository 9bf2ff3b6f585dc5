"""Programs in C and in Python as each other's peers: the examples of the C library, and the same in Python."""

import contextlib
import itertools
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import uct
from support import HERE, LIMIT, PATIENT, finish

#: The folder of what cargo has built, with the C library and the plugins of the verbs transports.
BUILT = os.environ.get("UCT_TEST_VERBS_MODULES")
LIBRARY = BUILT and Path(BUILT) / "libuct_net_c.so"
EXAMPLES = HERE.parent.parent / "c"

BLOCK, SHARED, WANTED = 32768, 512, 256


def place(number):
    """Where a block is at its owner."""
    return number * 37 % SHARED


def text(view):
    return bytes(view).split(b"\0")[0].decode()


class Server:
    """What each example does at the side that listens, in Python."""

    def echo(self, connection, _net):
        for message in connection:
            connection.send(message)

    def put_get(self, connection, net):
        memory = net.allocate(4096)
        view = memoryview(memory)
        view[:15] = b"from the owner\0"
        connection.share(memory)
        connection.recv(LIMIT)
        return text(view[256:320]), struct.unpack_from("<Q", view, 1024)[0]

    def blocks(self, connection, net):
        memory = net.allocate(SHARED * BLOCK)
        view = memoryview(memory)
        for number in range(SHARED):
            view[number * BLOCK : (number + 1) * BLOCK] = bytes([number & 255]) * BLOCK
        connection.share(memory)
        return connection.notified(LIMIT)


class Client:
    """What each example does at the side that connects, in Python."""

    def echo(self, connection, _net):
        connection.send(b"hello there")
        return connection.recv(LIMIT)

    def put_get(self, connection, net):
        remote, memory = connection.shared(LIMIT), net.allocate(4096)
        view = memoryview(memory)
        connection.get(memory[:256], remote)
        view[512:526] = b"from the user\0"
        connection.put(memory[512:576], remote, 256)
        counted = [connection.fetch_add(remote, 1024, 1) for _ in range(3)]
        connection.send(b"done")
        return text(view[:256]), counted

    def blocks(self, connection, net):
        remote, memory = connection.shared(LIMIT), net.allocate(WANTED * BLOCK)
        wanted = [(number * BLOCK, place(number) * BLOCK, BLOCK) for number in range(WANTED)]
        receipt = connection.get_blocks(memory, remote, wanted, notify=b"all are read").wait()
        view = memoryview(memory)
        right = [view[at * BLOCK : (at + 1) * BLOCK] == bytes([place(at) & 255]) * BLOCK for at in range(WANTED)]
        return receipt.bytes, all(right)


#: What a client in C is called with and prints, and what each side in Python returns.
EXPECTED = {
    "echo": ("hello there", "hello there\n", None, b"hello there"),
    "put_get": (
        "user",
        'the owner has written "from the owner"\ncounted from 2\n',
        ("from the user", 3),
        ("from the owner", [0, 1, 2]),
    ),
    "blocks": ("get", "256 blocks, 8388608 bytes\n", b"all are read", (WANTED * BLOCK, True)),
}

RUNS = list(itertools.product(("posix", "tcp"), EXPECTED))


@unittest.skipUnless(LIBRARY and LIBRARY.exists(), "UCT_TEST_VERBS_MODULES names no folder with the C library")
@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class Languages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        # Under the name that programs are linked to.
        (cls.folder / "libuct-net.so.0").symlink_to(LIBRARY)
        for example in EXPECTED:
            source = EXAMPLES / "examples" / f"{example}.c"
            command = ["cc", f"-I{EXAMPLES / 'include'}", str(source), "-o", str(cls.folder / example), str(LIBRARY)]
            subprocess.run(command, check=True, timeout=LIMIT)

    @contextlib.contextmanager
    def program(self, example, transport, *arguments):
        settings = {"LD_LIBRARY_PATH": str(self.folder), "UCT_TLS": transport, "UCT_CALIBRATION": "off"}
        process = subprocess.Popen(
            [self.folder / example, *arguments],
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def test_a_client_in_c_and_a_server_in_python(self):
        for transport, example in RUNS:
            argument, printed, served, _ = EXPECTED[example]
            with uct.Net(tls=transport, **PATIENT) as net, net.listen("127.0.0.1:0") as listener:
                with self.program(example, transport, listener.address, argument) as client:
                    with listener.accept(LIMIT) as connection:
                        self.assertTrue(connection.explanation["chosen"].startswith(transport))
                        self.assertEqual(getattr(Server(), example)(connection, net), served)
                    self.assertEqual(finish(client), (0, printed))

    def test_a_client_in_python_and_a_server_in_c(self):
        for transport, example in RUNS:
            # It says where it listens in its first line.
            with self.program(example, transport, "127.0.0.1:0") as server:
                address = server.stdout.readline().split()[-1]
                request = ("get_zcopy", BLOCK) if example == "blocks" else None
                with uct.Net(tls=transport, **PATIENT) as net:
                    with net.connect(address, LIMIT, request=request) as connection:
                        self.assertEqual(getattr(Client(), example)(connection, net), EXPECTED[example][3])
                if example != "echo":
                    status, output = finish(server)
                    self.assertEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
