"""The classes of `uct.aio`: what is awaited, cancelled, and left."""

import asyncio
import contextlib
import gc
import os
import unittest
import warnings
import weakref

import uct
from support import LIMIT, PATIENT, numpy, with_numpy
from uct import aio


@contextlib.asynccontextmanager
async def pair(transport="posix", **settings):
    settings = {"require": transport, **PATIENT, **settings}
    async with aio.Net(**settings) as left, aio.Net(**settings) as right:
        async with await left.listen("127.0.0.1:0") as listener:
            here, there = await asyncio.gather(listener.accept(), right.connect(listener.address))
        async with here, there:
            yield left, here, right, there


class Awaited(unittest.IsolatedAsyncioTestCase):
    async def test_messages_go_back_and_forth(self):
        for transport in ("posix", "tcp"):
            for settings in ({}, {"wait": "sleep"}):
                async with pair(transport, **settings) as (_, here, _, there):

                    async def echo():
                        async for message in here:
                            await here.send(message)

                    echoing = asyncio.create_task(echo())
                    for length in [8] * 100 + [0, 5000, 300_000]:
                        await there.send(b"m" * length)
                        self.assertEqual(await asyncio.wait_for(there.recv(), LIMIT), b"m" * length)
                    await there.close()
                    await asyncio.wait_for(echoing, LIMIT)

    async def test_a_call_that_is_done_at_once_does_not_suspend_its_task(self):
        async with pair() as (_, here, _, there):
            operation = here.send(b"x").__await__()
            with self.assertRaises(StopIteration) as end:
                next(operation)
            self.assertIsNone(end.exception.value)
            self.assertEqual(await there.recv(), b"x")
            with self.assertRaisesRegex(RuntimeError, "already"):
                await operation

    async def test_an_operation_is_a_coroutine_for_tasks(self):
        async with pair() as (_, here, _, there):
            receiving = asyncio.create_task(there.recv())
            await asyncio.sleep(0)
            await here.send(b"task")
            self.assertEqual(await receiving, b"task")
            async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
                received = [group.create_task(there.recv()) for _ in range(50)]
                for number in range(50):
                    group.create_task(here.send(bytes([number])))
            self.assertEqual(sorted(task.result()[0] for task in received), list(range(50)))
            never = there.recv()
            never.close()
            with self.assertRaises(RuntimeError):
                await never

    async def test_a_task_that_is_cancelled_loses_no_message(self):
        async with pair() as (_, here, _, there):
            for number in range(20):
                receiving = asyncio.create_task(there.recv())
                for _ in range(number % 3):
                    await asyncio.sleep(0)
                receiving.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await receiving
                await here.send(bytes([number]))
                self.assertEqual(await there.recv(), bytes([number]))
            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(there.recv(), 0.01)
            await here.send(b"last")
            self.assertEqual(await there.recv(), b"last")

    async def test_an_await_that_was_forgotten_is_a_warning(self):
        async with pair() as (left, here, _, there):
            for name, forget in (
                ("send", lambda: here.send(b"never")),
                ("recv", there.recv),
                ("listen", lambda: left.listen("127.0.0.1:0")),
                ("close", here.close),
            ):
                with self.assertWarnsRegex(RuntimeWarning, f"'{name}' of uct.aio was never awaited") as warned:
                    forget()
                self.assertEqual(warned.filename, __file__)
            try:
                raise KeyError("kept")
            except KeyError:
                with self.assertWarns(RuntimeWarning):
                    here.send(b"never")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                await here.send(b"awaited")
                receiving = asyncio.create_task(there.recv())
                self.assertEqual(await receiving, b"awaited")
                there.recv().close()
                late = asyncio.create_task(there.recv())
                late.cancel()
                await asyncio.gather(late, return_exceptions=True)
                with self.assertRaises(TimeoutError):
                    await asyncio.wait_for(there.recv(), 0.01)
                here.abort("done")
                with self.assertRaises(uct.Error):
                    await there.recv()
                del receiving, late
                gc.collect()
            self.assertEqual(list(map(str, caught)), [])

    async def test_other_tasks_run_while_one_waits(self):
        async with pair() as (_, here, _, there):
            rounds = 0

            async def count():
                nonlocal rounds
                while rounds < 100:
                    rounds += 1
                    await asyncio.sleep(0)
                await here.send(b"counted")

            counting = asyncio.create_task(count())
            self.assertEqual(await there.recv(), b"counted")
            self.assertEqual(rounds, 100)
            await counting

    async def test_many_connections_at_once(self):
        async with aio.Net(**PATIENT) as net:
            listener = await net.listen("127.0.0.1:0")

            async def answer(connection):
                async for message in connection:
                    await connection.send(message + b"!")

            async def serve():
                async for connection in listener:
                    tasks.append(asyncio.create_task(answer(connection)))

            tasks = []
            serving = asyncio.create_task(serve())

            async def ask(number):
                async with await net.connect(listener.address) as connection:
                    await connection.send(b"%d" % number)
                    return await connection.recv()

            async with asyncio.timeout(LIMIT):
                answers = await asyncio.gather(*map(ask, range(20)))
            self.assertEqual(answers, [b"%d!" % number for number in range(20)])
            listener.close()
            await serving
            await asyncio.gather(*tasks)

    async def test_errors_are_exceptions(self):
        async with aio.Net() as net:
            with self.assertRaises(uct.Error):
                await net.connect("127.0.0.1:1")
            with self.assertRaises(TypeError):
                net.connect(5)
        async with pair() as (_, here, _, there):
            await here.close()
            with self.assertRaises(uct.Closed):
                await there.recv()
            self.assertEqual([message async for message in there], [])

    async def test_the_end_of_a_net_ends_what_waits_and_leaves_nothing_in_the_loop(self):
        counts = []
        for _ in range(3):
            async with pair() as (left, here, right, there):
                listener = await left.listen("127.0.0.1:0")
                waiting = [asyncio.create_task(call()) for call in (here.recv, here.shared, there.recv, listener.accept)]
                await asyncio.sleep(0.01)
                await left.close()
                async with asyncio.timeout(LIMIT):
                    ends = await asyncio.gather(*waiting, return_exceptions=True)
                self.assertTrue(all(isinstance(end, uct.Error) for end in ends), ends)
            del left, here, right, there, listener, waiting, ends
            gc.collect()
            async with asyncio.timeout(LIMIT):
                # The library's threads end by themselves.
                while counts and len(os.listdir("/proc/self/fd")) > counts[0]:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            counts.append(len(os.listdir("/proc/self/fd")))

    async def test_blocks_and_notifications(self):
        async with pair() as (left, here, right, there):
            pool, local = left.allocate(1 << 20), right.allocate(1 << 20)
            memoryview(pool)[:4] = b"pool"
            await here.share(pool)
            remote = await there.shared()
            receipt = await there.get_blocks(local, remote, [(0, 0, 4096), (4096, 8192, 4096)], notify=b"done")
            self.assertEqual((receipt.blocks, await here.notified()), (2, b"done"))
            self.assertEqual(bytes(local[:4]), b"pool")
            transfer = there.put_blocks(local, remote, [(0, 0, 1 << 20)])
            waiting = asyncio.create_task(asyncio.wait_for(transfer, LIMIT))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            self.assertEqual((await transfer).bytes, 1 << 20)
            self.assertEqual(await transfer.cancel(), 1)
            await there.put(local[:4], remote, 100)
            await there.get(local[8:12], remote, 100)
            self.assertEqual(bytes(local[8:12]), b"pool")
            self.assertEqual(await there.fetch_add(remote, 512, 7), 0)
            await there.flush()

    @with_numpy
    async def test_an_array_is_held_until_its_operation_has_ended(self):
        async with pair() as (_, here, _, there):
            buffer = bytearray(1 << 20)
            receiving = asyncio.create_task(there.recv_into(buffer))
            await asyncio.sleep(0)
            with self.assertRaises(BufferError):
                buffer.append(0)
            await here.send(numpy.ones(1 << 20, numpy.uint8))
            self.assertEqual(await receiving, 1 << 20)
            buffer.append(0)
            self.assertEqual(sum(buffer), 1 << 20)
            receiving = asyncio.create_task(there.recv_into(buffer))
            await asyncio.sleep(0)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            del receiving
            buffer.append(0)


class Loops(unittest.TestCase):
    def test_a_net_serves_one_loop_after_another(self):
        net = aio.Net(**PATIENT)
        listener = asyncio.run(self.listen(net))
        for number in range(3):
            asyncio.run(self.exchange(net, listener, number))
        asyncio.run(self.close(net))

    async def listen(self, net):
        return await net.listen("127.0.0.1:0")

    async def exchange(self, net, listener, number):
        here, there = await asyncio.gather(listener.accept(), net.connect(listener.address))
        receiving = asyncio.create_task(here.recv())
        await asyncio.sleep(0)
        await there.send(bytes([number]))
        self.assertEqual(await receiving, bytes([number]))
        await asyncio.gather(here.close(), there.close())

    async def close(self, net):
        await net.close()

    def test_a_loop_that_is_given_up_is_collected(self):
        async def wait():
            async with await net.listen("127.0.0.1:0") as listener:
                await listener.accept()

        net = aio.Net(**PATIENT)
        loop = asyncio.new_event_loop()
        task = loop.create_task(wait())
        for _ in range(20):
            loop.call_soon(loop.stop)
            loop.run_forever()
        gone = weakref.ref(loop)
        task.cancel()
        for _ in range(5):
            loop.call_soon(loop.stop)
            loop.run_forever()
        loop.close()
        del loop, task
        gc.collect()
        self.assertIsNone(gone())
        asyncio.run(self.close(net))


if __name__ == "__main__":
    unittest.main()
