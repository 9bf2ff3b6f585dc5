"""The programs of the page run as they are printed, but for the port."""

import re
import signal
import unittest

from support import HERE, code, finish

PAGE = HERE.parents[2] / "docs" / "python.md"
ADDRESS = "127.0.0.1:7000"


def programs():
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


class Page(unittest.TestCase):
    def program(self, word):
        found = [text for text in programs() if word in text]
        self.assertEqual(len(found), 1, word)
        return found[0]

    def call(self, address):
        # Over shared memory, unless the machine has been too busy for that.
        text = self.program("timeout=5").replace(ADDRESS, address).replace("timeout=5", "timeout=60")
        status, output = finish(code(text))
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"^b'got hello' over [a-z]+/\w+\n$")

    def test_a_server_and_its_client(self):
        server = code(self.program("listening at").replace(ADDRESS, "127.0.0.1:0"), PYTHONUNBUFFERED="1")
        address = server.stdout.readline().split()[-1]
        self.call(address)
        self.assertEqual(finish(server), (0, ""))

    def test_the_server_of_asyncio(self):
        text = self.program("TaskGroup").replace(ADDRESS, "127.0.0.1:0")
        text = text.replace("    async with asyncio.TaskGroup", "    print(listener.address, flush=True)\n        async with asyncio.TaskGroup")
        server = code(text)
        address = server.stdout.readline().strip()
        for _ in range(2):
            self.call(address)
        server.send_signal(signal.SIGINT)
        self.assertIn("KeyboardInterrupt", finish(server)[1])

    def test_memory(self):
        status, output = finish(code(self.program("get_blocks")))
        self.assertEqual(status, 0, output)
        self.assertIn("b'hello'", output)
        self.assertIn("notified: b'read'", output)
        self.assertIn("<uct.Receipt: 2 blocks, 8192 bytes over ", output)
        printed = re.search(r"^```text\n(b'hello'\nnotified.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        same = [re.sub(r" over .*", "", text).splitlines() for text in (output, printed[1])]
        self.assertEqual(*same)

    def test_errors(self):
        status, output = finish(code(self.program("error.remedy")))
        self.assertEqual((status, output.splitlines()[:2]), (0, ["call the listener", "127.0.0.1:1"]))


if __name__ == "__main__":
    unittest.main()
