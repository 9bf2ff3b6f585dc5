"""The classes of `uct`: messages, limits, errors, threads."""

import array
import contextlib
import gc
import pickle
import threading
import unittest
import weakref

import uct
from support import LIMIT, PATIENT, numpy, pair, with_numpy


class Messages(unittest.TestCase):
    def test_messages_of_every_kind_arrive(self):
        with pair() as (_, here, _, there):
            for data in (b"", b"bytes", bytearray(b"array"), memoryview(b"view"), array.array("d", [1.5] * 5000), b"x" * 300_000):
                here.send(data)
                self.assertEqual(there.recv(LIMIT), bytes(data))

    @with_numpy
    def test_arrays_are_sent_and_received_in_place(self):
        with pair() as (_, here, _, there):
            sent = numpy.arange(50_000, dtype=numpy.float64)
            sending = threading.Thread(target=here.send, args=(sent,))
            sending.start()
            received = numpy.zeros_like(sent)
            self.assertEqual(there.recv_into(received, LIMIT), sent.nbytes)
            sending.join()
            numpy.testing.assert_array_equal(received, sent)
            with self.assertRaisesRegex(ValueError, "ascontiguousarray"):
                here.send(sent[::2])

    @with_numpy
    def test_an_array_without_dimensions_is_data(self):
        with pair() as (_, here, _, there):
            received = numpy.array(0.0)
            for data in (numpy.float64(2.5), numpy.array(2.5)):
                here.send(data)
                self.assertEqual((there.recv_into(received, LIMIT), received), (8, 2.5))
            with self.assertRaisesRegex(TypeError, "read-only"):
                there.recv_into(numpy.float64(2.5))

    @with_numpy
    def test_a_tensor_with_dlpack_alone_is_sent(self):
        class Tensor:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **settings):
                return self.array.__dlpack__(**settings)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        with pair() as (_, here, _, there):
            here.send(Tensor(numpy.arange(10, dtype=numpy.int32)))
            self.assertEqual(there.recv(LIMIT), numpy.arange(10, dtype=numpy.int32).tobytes())

    def test_a_message_that_is_too_long_for_a_buffer_stays(self):
        with pair() as (_, here, _, there):
            here.send(b"twelve bytes")
            with self.assertRaises(uct.Error) as refused:
                there.recv_into(bytearray(4), LIMIT)
            self.assertEqual(refused.exception.status, "MESSAGE_TRUNCATED")
            self.assertTrue(refused.exception.remedy)
            buffer = bytearray(100)
            self.assertEqual(there.recv_into(buffer, LIMIT), 12)
            self.assertEqual(buffer[:12], b"twelve bytes")

    def test_iterating_ends_with_the_connection(self):
        with pair() as (_, here, _, there):
            for number in range(3):
                here.send(bytes([number]))
            here.close()
            self.assertEqual(list(there), [b"\0", b"\1", b"\2"])
            with self.assertRaises(uct.Closed):
                there.recv()
            with self.assertRaisesRegex(uct.Error, "this side has closed the connection"):
                here.send(b"late")

    def test_one_direction_ends_alone(self):
        with pair() as (_, here, _, there):
            here.send(b"all")
            here.shutdown(LIMIT)
            self.assertEqual(list(there), [b"all"])
            there.send(b"answer")
            with self.assertRaisesRegex(uct.Error, "has ended its messages") as refused:
                here.send(b"late")
            self.assertNotIsInstance(refused.exception, uct.Closed)
            self.assertEqual(refused.exception.status, "CANCELED")
            self.assertEqual(here.recv(LIMIT), b"answer")

    def test_what_was_unread_is_received_after_a_send_is_refused(self):
        with pair() as (_, here, _, there):
            here.send(b"unread")
            closing = threading.Thread(target=here.close)
            closing.start()
            with self.assertRaises(uct.Closed):
                while True:
                    there.send(b"x")
            self.assertEqual(there.recv(LIMIT), b"unread")
            with self.assertRaises(uct.Closed):
                there.recv(LIMIT)
            closing.join(LIMIT)

    def test_threads_send_and_receive_at_once(self):
        with pair() as (_, here, _, there):

            def send(number):
                for _ in range(200):
                    here.send(bytes([number]) * 100)

            threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            counts = [0] * 4
            for _ in range(800):
                counts[there.recv(LIMIT)[0]] += 1
            self.assertEqual(counts, [200] * 4)
            for thread in threads:
                thread.join()

    def test_other_threads_run_while_one_waits(self):
        with pair() as (_, here, _, there):
            received = []
            waiting = threading.Thread(target=lambda: received.append(there.recv(LIMIT)))
            waiting.start()
            self.assertEqual(sum(range(100_000)), 4999950000)
            here.send(b"now")
            waiting.join(LIMIT)
            self.assertEqual(received, [b"now"])

    def test_private_data_and_the_explanation(self):
        with uct.Net(tls=["posix", "tcp"], **PATIENT) as net, net.listen("127.0.0.1:0") as listener:
            accepted = []
            accepting = threading.Thread(target=lambda: accepted.append(listener.accept(LIMIT)))
            accepting.start()
            with net.connect(listener.address, private=b"who I am", request=("get_zcopy", 65536)) as connection:
                accepting.join()
                self.assertEqual(accepted[0].private, b"who I am")
                explanation = connection.explanation
                self.assertIn(explanation["chosen"], [candidate["name"] for candidate in explanation["candidates"]])
                verdicts = {candidate["verdict"] for candidate in explanation["candidates"]}
                self.assertTrue(verdicts <= {"chosen", "usable", "rejected"}, verdicts)
                self.assertIn("connected over", explanation["text"])


class Errors(unittest.TestCase):
    def test_nobody_listens(self):
        with uct.Net() as net, self.assertRaises(uct.Error) as refused:
            net.connect("127.0.0.1:1")
        error = refused.exception
        self.assertEqual((error.stage, error.peer), ("call the listener", "127.0.0.1:1"))
        self.assertTrue(error.reason and error.remedy and error.status)
        self.assertIn(error.reason, str(error))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), again.remedy, str(again)), (uct.Error, error.remedy, str(error)))

    def test_a_limit_is_a_timeout_and_the_connection_goes_on(self):
        with pair() as (_, here, _, there):
            with self.assertRaises(TimeoutError) as late:
                there.recv(timeout=0.01)
            self.assertIsInstance(late.exception, uct.TimedOut)
            here.send(b"in time")
            self.assertEqual(there.recv(LIMIT), b"in time")

    def test_bad_arguments_are_named(self):
        released = memoryview(b"view")
        released.release()
        with pair() as (net, here, _, _):
            for kind, words, use in (
                (TypeError, "bytes-like", lambda: here.send("text")),
                (TypeError, "bytes-like", lambda: here.send(None)),
                (ValueError, "released", lambda: here.send(released)),
                (TypeError, "read-only", lambda: here.recv_into(b"constant")),
                (ValueError, "timeout = -1", lambda: here.recv(timeout=-1)),
                (ValueError, "timeout = NaN", lambda: here.recv(timeout=float("nan"))),
                (ValueError, "0 bytes", lambda: net.allocate(0)),
                (OverflowError, "", lambda: net.allocate(-1)),
                (ValueError, "operation", lambda: net.connect("127.0.0.1:1", request=("fly", 1))),
                (ValueError, "wait", lambda: uct.Net(wait="never")),
                (ValueError, "window", lambda: uct.Net(window=1)),
                (OverflowError, "", lambda: uct.Net(window=-1)),
                (TypeError, "shared_key: expected bytes, not str", lambda: uct.Net(shared_key="text")),
                (ValueError, "tsl", lambda: uct.Net(tsl="tcp")),
                (TypeError, "require", lambda: uct.Net(require=5)),
                (uct.Error, "", lambda: net.connect("nowhere")),
                (uct.Error, "", lambda: net.listen("127.0.0.1:99999")),
                (uct.Error, "no memory|NO_MEMORY|memory", lambda: net.allocate(1 << 60)),
            ):
                with self.subTest(words=words), self.assertRaisesRegex(kind, words):
                    use()

    def test_a_listener_that_does_not_accept_is_named(self):
        with uct.Net(**PATIENT) as net, net.listen("127.0.0.1:0") as listener:
            with self.assertRaises(uct.TimedOut) as late:
                net.connect(listener.address, timeout=1)
        self.assertIn("its program has to accept", late.exception.remedy)

    def test_a_message_over_the_limit_is_named_on_both_sides(self):
        with pair(max_message=1_000_000) as (_, here, _, there):
            with contextlib.suppress(uct.Error):
                here.send(bytes(1_000_001), LIMIT)
            for side in (there, here):
                with self.assertRaisesRegex(uct.Error, r"message of (at least )?1\d{6} bytes: max_message is 1000000"):
                    side.recv(LIMIT)

    def test_the_peer_aborts_with_a_reason(self):
        with pair() as (_, here, _, there):
            here.abort("no more of this")
            with self.assertRaisesRegex(uct.Error, "no more of this"):
                there.recv(LIMIT)


class Ends(unittest.TestCase):
    def test_the_end_of_a_net_ends_what_waits(self):
        with pair() as (left, here, right, there):
            failed = []

            def wait(call):
                try:
                    call()
                except uct.Error as error:
                    failed.append(error)

            listener = left.listen("127.0.0.1:0")
            calls = (here.recv, here.shared, here.notified, listener.accept)
            waiting = [threading.Thread(target=wait, args=(call,)) for call in calls]
            for thread in waiting:
                thread.start()
            left.close()
            for thread in waiting:
                thread.join(LIMIT)
            self.assertEqual(len(failed), len(calls))
            with self.assertRaisesRegex(uct.Error, "closed the net"):
                left.connect("127.0.0.1:1")
            left.close()

    def test_a_listener_that_is_closed_ends_its_iteration(self):
        with uct.Net() as net:
            listener = net.listen("127.0.0.1:0")
            threading.Timer(0.05, listener.close).start()
            self.assertEqual(list(listener), [])

    def test_cycles_are_collected(self):
        class Holder:
            pass

        with pair() as (left, here, _, there):
            holder = Holder()
            holder.memory = left.allocate(4096)
            holder.view, holder.own = memoryview(holder.memory), holder
            gone = weakref.ref(holder)
            del holder
            gc.collect()
            self.assertIsNone(gone())


if __name__ == "__main__":
    unittest.main()
