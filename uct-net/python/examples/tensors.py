"""A one-sided transport of tensors between two processes: register memory, exchange views, read and write.

    python tensors.py owner 127.0.0.1:7001 &
    python tensors.py worker 127.0.0.1:7001

The shape is that of transports that frameworks of tensors register: memory is registered once, a peer gets a
descriptor of a view, and `read` and `write` return works. Cancelling a task that awaits a work stops the waiting and
not the transfer: the memory of both sides is in use until `work.wait` or `work.cancel` says otherwise. Arrays are
NumPy's; a tensor of the host is one after `torch.from_numpy`.
"""

import asyncio
import json
import sys

import numpy as np

from uct import aio


class View:
    """A part of registered memory of this process: as an array here, as a descriptor for the peer."""

    def __init__(self, transport, offset, array):
        self.transport, self.offset, self.array = transport, offset, array

    @property
    def size(self):
        return self.array.nbytes

    def descriptor(self):
        """What the peer needs, as bytes for any message."""
        layout = {"offset": self.offset, "shape": self.array.shape, "dtype": self.array.dtype.str}
        return json.dumps(layout).encode()


class RemoteView:
    """A view of the peer's, made of its descriptor."""

    def __init__(self, descriptor):
        layout = json.loads(descriptor)
        self.offset, self.shape, self.dtype = layout["offset"], tuple(layout["shape"]), np.dtype(layout["dtype"])

    @property
    def size(self):
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Work:
    """A read or write that has started."""

    def __init__(self, transfer):
        self.transfer = transfer
        self.ending = asyncio.ensure_future(self._end())

    async def _end(self):
        return await self.transfer

    def is_done(self):
        return self.ending.done()

    async def wait(self, timeout=None):
        """Its receipt. Neither a limit nor the cancellation of the caller ends the transfer."""
        return await asyncio.wait_for(asyncio.shield(self.ending), timeout)

    async def cancel(self):
        """Begins nothing more, and is done when nothing is in flight: the memory may be used again."""
        await self.transfer.cancel()
        await asyncio.gather(self.ending, return_exceptions=True)

    def __await__(self):
        return self.wait().__await__()


class Transport:
    """One peer, and a pool of registered memory that it may read and write."""

    def __init__(self, net, connection, room):
        self.connection, self.used = connection, 0
        self.pool = net.allocate(room)
        self.bytes = np.frombuffer(self.pool, np.uint8)

    @classmethod
    async def over(cls, net, connection, room=1 << 20):
        """Each side lets the other one use its pool."""
        transport = cls(net, connection, room)
        await connection.share(transport.pool)
        transport.remote = await connection.shared()
        return transport

    def empty(self, shape, dtype=np.float32):
        """A view of new memory, as `numpy.empty`."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        offset = -(-self.used // 64) * 64
        if offset + size > len(self.pool):
            raise MemoryError(f"{size} bytes: {len(self.pool) - offset} of the pool are left; give it more room")
        self.used = offset + size
        return View(self, offset, self.bytes[offset : offset + size].view(dtype).reshape(shape))

    def read(self, views, remotes, notify=None):
        """Starts to read the peer's views into views of this side."""
        return Work(self.connection.get_blocks(self.pool, self.remote, pairs(views, remotes), notify=notify))

    def write(self, views, remotes, notify=None):
        """Starts to write views of this side to the peer's; its `notified` returns when all of them are there."""
        return Work(self.connection.put_blocks(self.pool, self.remote, pairs(views, remotes), notify=notify))

    async def notified(self):
        return await self.connection.notified()


def pairs(views, remotes):
    for view, remote in zip(views, remotes, strict=True):
        if view.size != remote.size:
            raise ValueError(f"a view of {view.size} bytes does not fit one of {remote.size}")
    return [(view.offset, remote.offset, view.size) for view, remote in zip(views, remotes)]


async def owner(net, address):
    """Has weights, and gets gradients."""
    async with await net.listen(address) as listener:
        print("listening at", listener.address, flush=True)
        async with await listener.accept() as connection:
            transport = await Transport.over(net, connection)
            weights, gradients = transport.empty((256, 256)), transport.empty((256, 256))
            weights.array[:] = np.arange(256, dtype=np.float32)
            gradients.array[:] = 0
            for view in (weights, gradients):
                await connection.send(view.descriptor())
            print("the peer has written:", (await transport.notified()).decode())
            print("mean of the gradients:", gradients.array.mean())


async def worker(net, address):
    """Reads the weights, and writes gradients."""
    async with await net.connect(address, request=("get_zcopy", 256 * 256 * 4)) as connection:
        transport = await Transport.over(net, connection)
        weights, gradients = [RemoteView(await connection.recv()) for _ in range(2)]
        local, result = transport.empty(weights.shape), transport.empty(gradients.shape)
        receipt = await transport.read([local], [weights])
        print(f"{receipt.bytes} bytes over {receipt.over}")
        result.array[:] = local.array * 2
        await transport.write([result], [gradients], notify=b"step 1")


async def main(role, address):
    async with aio.Net() as net:
        await {"owner": owner, "worker": worker}[role](net, address)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
