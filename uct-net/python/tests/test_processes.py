"""Two processes: they talk over each transport, one is killed, forks, or ends with open connections."""

import os
import signal
import time
import unittest

import uct
from support import EXAMPLES, HERE, LIMIT, PATIENT, code, finish, program, with_numpy

#: The folder with the plugins of the verbs transports, which then have a device in software.
MODULES = os.environ.get("UCT_TEST_VERBS_MODULES")

SERVE = """
import sys, uct
net = uct.Net(require=sys.argv[1], handshake_timeout=30, lane_timeout=20)
listener = net.listen("127.0.0.1:0")
print(listener.address, flush=True)
connection = listener.accept(60)
"""


def serve(text, transport="posix"):
    server = code(SERVE + text, transport)
    return server, server.stdout.readline().strip()


class Processes(unittest.TestCase):
    def talk(self, transport, **environment):
        server = program(HERE / "talk.py", "serve", **environment)
        client = program(HERE / "talk.py", "call", server.stdout.readline().strip(), transport, **environment)
        for process in (client, server):
            status, output = finish(process)
            self.assertEqual(status, 0, output)
            if process is client:
                self.assertIn(f"over {transport}", output)

    def test_they_talk_over_posix(self):
        self.talk("posix")

    def test_they_talk_over_tcp(self):
        self.talk("tcp")

    @unittest.skipUnless(MODULES, "UCT_TEST_VERBS_MODULES does not name the plugins of the verbs transports")
    def test_they_talk_over_verbs(self):
        settings = {"UCT_IB_LIBRARY": "soft", "SOFTVERBS_NAME": "mlx5_0", "UCT_RC_VERBS_RX_QUEUE_LEN": "512"}
        settings["UCT_NET_DEVICES"] = "lo,mlx5_0:1"
        self.talk("rc_verbs", UCT_MODULE_DIR=MODULES, UCT_MODULES="self,shm,tcp,rc_verbs", **settings)

    def test_the_death_of_the_peer_is_an_exception(self):
        for transport in ("posix", "tcp"):
            server, address = serve("connection.send(b'here')\nconnection.recv()", transport)
            with uct.Net(require=transport, **PATIENT) as net, net.connect(address) as connection:
                self.assertEqual(connection.recv(LIMIT), b"here")
                server.kill()
                with self.assertRaises(uct.Error) as failed:
                    connection.recv(LIMIT)
                self.assertNotIsInstance(failed.exception, (uct.TimedOut, uct.Closed))
            finish(server)

    def test_a_child_of_a_fork_gets_an_error_in_words(self):
        for start in ("os.fork()", "fork_in_thread()"):
            server, address = serve(
                f"""
import os, threading
memory = net.allocate(4096)
def fork_in_thread():
    out = []
    thread = threading.Thread(target=lambda: out.append(os.fork() or child()))
    thread.start(); thread.join()
    return out[0]
def child():
    for use in (lambda: connection.send(b"x"), lambda: connection.recv(1), lambda: net.connect("127.0.0.1:1"),
                lambda: listener.accept(1), lambda: net.allocate(1), lambda: connection.share(memory)):
        try:
            use()
            os._exit(2)
        except uct.Error as error:
            if "fork" not in error.reason:
                os._exit(3)
    for end in (lambda: connection.abort("x"), lambda: connection.__exit__(), listener.close, net.close):
        end()
    if not (listener.address and listener.port and connection.peer and len(memory) == 4096 and connection.private == b""):
        os._exit(5)
    try:
        memoryview(memory)
        os._exit(4)
    except uct.Error:
        os._exit(0)
pid = {start}
if pid == 0:
    child()
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
connection.send(str(status).encode())
connection.close()
"""
            )
            with uct.Net(**PATIENT) as net, net.connect(address) as connection:
                self.assertEqual(connection.recv(LIMIT), b"0")
            self.assertEqual(finish(server), (0, ""))

    def test_a_child_that_ends_by_itself_leaves_the_connection_alone(self):
        server, address = serve(
            """
import os
pid = os.fork()
if pid:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    connection.send(b"still here")
    connection.close()
"""
        )
        with uct.Net(**PATIENT) as net, net.connect(address) as connection:
            self.assertEqual(connection.recv(LIMIT), b"still here")
        self.assertEqual(finish(server), (0, ""))

    def test_an_interpreter_that_ends_delivers_what_was_sent_last(self):
        cycle = "loop = [connection, net]; loop.append(loop)"
        waiting = """
import contextlib, threading
def wait():
    with contextlib.suppress(uct.Error):
        connection.recv()
threading.Thread(target=wait, daemon=True).start()
"""
        for text in ("", cycle, waiting):
            server, address = serve(f"connection.send(b'last')\n{text}")
            with uct.Net(**PATIENT) as net:
                connection = net.connect(address)
                self.assertEqual(finish(server), (0, ""), text)
                self.assertEqual(connection.recv(LIMIT), b"last")
                with self.assertRaises(uct.Error):
                    connection.recv(LIMIT)

    def test_an_event_loop_that_ends_with_open_connections_ends(self):
        text = """
import asyncio, sys
from uct import aio
async def main():
    net = aio.Net()
    connection = await net.connect(sys.argv[1])
    await connection.send(b"hello")
    asyncio.create_task(connection.recv())
    await asyncio.sleep(0)
asyncio.run(main())
"""
        with uct.Net(**PATIENT) as net, net.listen("127.0.0.1:0") as listener:
            client = code(text, listener.address)
            with listener.accept(LIMIT) as connection:
                self.assertEqual(connection.recv(LIMIT), b"hello")
                self.assertEqual(finish(client), (0, ""))

    def test_an_operation_that_is_left_when_the_interpreter_ends_is_no_warning(self):
        text = "from uct import aio; net = aio.Net(); left = net.listen('127.0.0.1:0')"
        self.assertEqual(finish(code(text, PYTHONWARNINGS="always")), (0, ""))

    def test_ctrl_c_ends_a_call_that_waits(self):
        text = """
import sys, uct
net = uct.Net()
listener = net.listen("127.0.0.1:0")
try:
    print("waits", flush=True)
    listener.accept()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
        waiting = code(text)
        self.assertEqual(waiting.stdout.readline(), "waits\n")
        # Mostly it waits by then; wherever it is, it is interrupted.
        time.sleep(0.3)
        waiting.send_signal(signal.SIGINT)
        self.assertEqual(finish(waiting), (0, "interrupted\n"))

    def test_the_example_of_streams_serves_http(self):
        server = program(EXAMPLES / "aio_streams.py", "serve", "127.0.0.1:0")
        address = server.stdout.readline().split()[-1]
        for path in ("/hello", "/" + "x" * 50_000):
            client = program(EXAMPLES / "aio_streams.py", "get", address, path)
            self.assertEqual(finish(client), (0, path + "\n"))
        server.send_signal(signal.SIGINT)
        finish(server)

    @with_numpy
    def test_the_example_of_tensors_reads_and_writes(self):
        owner = program(EXAMPLES / "tensors.py", "owner", "127.0.0.1:0")
        address = owner.stdout.readline().split()[-1]
        status, output = finish(program(EXAMPLES / "tensors.py", "worker", address))
        self.assertEqual(status, 0, output)
        self.assertIn("262144 bytes over", output)
        status, output = finish(owner)
        self.assertEqual((status, "mean of the gradients: 255.0" in output), (0, True), output)

    def test_it_is_imported_without_numpy(self):
        text = "import sys; sys.modules['numpy'] = None; import uct; uct.Net().close(); print('fine')"
        self.assertEqual(finish(code(text)), (0, "fine\n"))


if __name__ == "__main__":
    unittest.main()
