"""Registered memory: its buffer, put and get, blocks, notifications."""

import threading
import unittest

import uct
from support import LIMIT, numpy, pair, with_numpy


class Memory(unittest.TestCase):
    def test_its_buffer_is_writable_and_its_parts_are_parts(self):
        with uct.Net() as net:
            memory = net.allocate(100)
            self.assertEqual(len(memory), 100)
            view = memoryview(memory)
            self.assertEqual((len(view), view.readonly, bytes(view)), (100, False, bytes(100)))
            view[10:15] = b"hello"
            part = memory[10:20][:5]
            self.assertEqual((len(part), bytes(part)), (5, b"hello"))
            self.assertEqual(bytes(memory[-90:-85]), b"hello")
            self.assertEqual(len(memory[200:]), 0)
            for bad in (0, "x", slice(0, 10, 2)):
                with self.assertRaises((TypeError, IndexError)):
                    memory[bad]

    def test_it_outlives_its_net(self):
        net = uct.Net()
        view = memoryview(net.allocate(4096))
        net.close()
        view[:3] = b"yes"
        self.assertEqual(bytes(view[:3]), b"yes")

    def test_put_get_and_add(self):
        for transport in ("posix", "tcp"):
            with pair(transport) as (left, here, right, there):
                theirs, ours = left.allocate(4096), right.allocate(4096)
                here.share(theirs)
                remote = there.shared(LIMIT)
                self.assertGreaterEqual(len(remote), 4096)
                memoryview(ours)[:5] = b"there"
                there.put(ours[:5], remote, 100, LIMIT)
                self.assertEqual(bytes(theirs[100:105]), b"there")
                there.get(ours[200:205], remote, offset=100, timeout=LIMIT)
                self.assertEqual(bytes(ours[200:205]), b"there")
                self.assertEqual(there.fetch_add(remote, 8, 5), 0)
                self.assertEqual(there.fetch_add(remote, 8, 1), 5)
                self.assertEqual(there.fetch_add(remote, 8, 2**64 - 4), 6)
                self.assertEqual(there.fetch_add(remote, 8, 0), 2)
                for value in (-1, 2**64):
                    with self.assertRaises(OverflowError):
                        there.fetch_add(remote, 8, value)
                there.flush(LIMIT)
                for beyond in (lambda: there.put(ours, remote, len(remote)), lambda: there.fetch_add(remote, len(remote) - 7, 1)):
                    with self.assertRaisesRegex(ValueError, "not part of"):
                        beyond()

    def test_a_part_is_shared_and_taken_back(self):
        with pair("tcp") as (left, here, right, there):
            memory, local = left.allocate(8192), right.allocate(4096)
            here.share(memory[4096:])
            remote = there.shared(LIMIT)
            self.assertEqual(len(remote), 4096)
            there.get(local, remote)
            self.assertTrue(here.unshare(memory[4096:]))
            self.assertFalse(here.unshare(memory[4096:]))
            with self.assertRaises(uct.Error):
                there.get(local, remote)

    def test_a_part_is_sent_as_a_message(self):
        with pair() as (left, here, _, there):
            memory = left.allocate(1 << 20)
            memoryview(memory)[:] = bytes(range(256)) * 4096
            sending = threading.Thread(target=here.send, args=(memory[256:],))
            sending.start()
            self.assertEqual(there.recv(LIMIT), bytes(memory[256:]))
            sending.join()

    def test_blocks_move_with_a_notification(self):
        for transport in ("posix", "tcp"):
            with pair(transport) as (left, here, right, there):
                pool, local = left.allocate(64 << 10), right.allocate(64 << 10)
                for number in range(16):
                    memoryview(pool)[number * 4096 : (number + 1) * 4096] = bytes([number]) * 4096
                here.share(pool)
                remote = there.shared(LIMIT)
                transfer = there.get_blocks(local, remote, [(4096 * at, 4096 * it, 4096) for at, it in enumerate((7, 3, 12))], b"read")
                receipt = transfer.wait(LIMIT)
                self.assertEqual((receipt.blocks, receipt.bytes, transfer.moved), (3, 3 * 4096, 3))
                self.assertIn(transport, receipt.over)
                self.assertEqual(transfer.missing(), [])
                self.assertEqual(here.notified(LIMIT), b"read")
                self.assertEqual(bytes(local[:12288:]), b"\7" * 4096 + b"\3" * 4096 + b"\14" * 4096)
                self.assertEqual(transfer.wait().bytes, receipt.bytes)
                # From a part of the memory: offsets count from there.
                there.put_blocks(local[4096:], remote, ((0, 0, 4096),)).wait(LIMIT)
                self.assertEqual(bytes(pool[:4096]), b"\3" * 4096)
                transfer.again()
                transfer.wait(LIMIT)
                self.assertEqual(here.notified(LIMIT), b"read")

    @with_numpy
    def test_arrays_are_lists_of_blocks_and_views_of_memory(self):
        with pair() as (left, here, right, there):
            pool, local = left.allocate(1 << 20), right.allocate(1 << 20)
            numpy.frombuffer(pool, numpy.uint32)[:] = numpy.arange(1 << 18)
            here.share(pool)
            remote = there.shared(LIMIT)
            for kind in (numpy.int64, numpy.uint64, numpy.int32, numpy.uint32, numpy.longlong, numpy.ulonglong):
                at = numpy.arange(100, dtype=kind) * 4096
                blocks = numpy.stack([at, at[::-1], numpy.full(100, 4096, kind)], axis=1)
                there.get_blocks(local, remote, blocks).wait(LIMIT)
                there_, here_ = (numpy.frombuffer(memory, numpy.uint32)[: 100 * 1024] for memory in (local, pool))
                numpy.testing.assert_array_equal(there_.reshape(100, 1024)[::-1], here_.reshape(100, 1024))
            for kind in (numpy.int16, numpy.uint16, numpy.int8, numpy.uint8):
                blocks = numpy.array([[0, 1, 100], [100, 2, 27]], kind)
                self.assertEqual(there.get_blocks(local, remote, blocks).wait(LIMIT).bytes, 127)
            numbers = [tuple(numpy.array([0, 0, 4096])), (True, False, 1)]
            self.assertEqual(there.get_blocks(local, remote, numbers).wait(LIMIT).bytes, 4097)
            for wrong, kind in (
                (numpy.zeros((3, 2), numpy.int64), ValueError),
                (numpy.zeros(3, numpy.int64), ValueError),
                (numpy.full((1, 3), -1), ValueError),
                (numpy.zeros((1, 3)), TypeError),
                (numpy.zeros((1, 3), ">i2"), TypeError),
            ):
                with self.assertRaises(kind):
                    there.get_blocks(local, remote, wrong)

    def test_wrong_blocks_are_refused_in_words(self):
        with pair() as (left, here, right, there):
            local, memory = right.allocate(4096), left.allocate(4096)
            here.share(memory)
            remote = there.shared(LIMIT)
            for kind, blocks in (
                (TypeError, 5),
                (TypeError, [(1, 2)]),
                (TypeError, [("a", 0, 1)]),
                (TypeError, "abc"),
                (ValueError, [(-1, 0, 1)]),
                (ValueError, [(0, 0, 1 << 70)]),
                (ValueError, [(4000, 0, 97)]),
                (ValueError, [(0, 1 << 40, 1)]),
                (ValueError, [((1 << 64) - 1, 0, 2)]),
            ):
                with self.subTest(blocks=blocks), self.assertRaises(kind):
                    there.get_blocks(local, remote, blocks)
            with self.assertRaises(ValueError):
                there.put_blocks(local, remote, [(0, 0, 1)], b"x" * 2000)
            self.assertEqual(there.get_blocks(local, remote, []).wait(LIMIT).blocks, 0)

    def test_a_transfer_that_is_cancelled_says_so(self):
        with pair() as (left, here, right, there):
            local, memory = right.allocate(8 << 20), left.allocate(8 << 20)
            here.share(memory)
            transfer = there.get_blocks(local, there.shared(LIMIT), [(at, at, 4096) for at in range(0, 8 << 20, 8192)])
            count = transfer.cancel()
            self.assertEqual((transfer.moved, transfer.cancel()), (count, count))
            self.assertEqual(len(transfer.missing()), 1024 - count)
            if count < 1024:
                with self.assertRaises(uct.Error) as refused:
                    transfer.wait(LIMIT)
                self.assertEqual(refused.exception.status, "CANCELED")

    def test_memory_of_another_net_is_refused(self):
        with pair() as (_, here, right, _), self.assertRaisesRegex(uct.Error, "another Net"):
            here.share(right.allocate(4096))


if __name__ == "__main__":
    unittest.main()
