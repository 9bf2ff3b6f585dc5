"""Any asyncio protocol over a connection of uct: an HTTP server over shared memory.

    python aio_streams.py serve 127.0.0.1:8080 &
    python aio_streams.py get 127.0.0.1:8080 /hello

`open_connection` and `start_server` are those of asyncio, with an address of uct in place of host and port. What they
return is built on `Transport`, which serves any protocol that asyncio's own transports serve.
"""

import asyncio
import sys

import uct
from uct import aio

LIMIT = 64 << 10


class Transport(asyncio.Transport):
    """A connection as a transport of asyncio: messages carry the bytes, and their boundaries mean nothing."""

    def __init__(self, connection, protocol, loop):
        super().__init__(extra={"peername": connection.peer, "uct_connection": connection})
        self.connection, self.protocol, self.loop = connection, protocol, loop
        self.out, self.unsent = asyncio.Queue(), 0
        self.can_read = asyncio.Event()
        self.can_read.set()
        self.is_ending = self.is_protocol_paused = False
        self.set_write_buffer_limits()
        protocol.connection_made(self)
        self.tasks = [loop.create_task(self.read_all()), loop.create_task(self.write_all())]

    async def read_all(self):
        try:
            async for data in self.connection:
                await self.can_read.wait()
                self.protocol.data_received(data)
            if not self.protocol.eof_received():
                self.close()
        except uct.Error as error:
            await self.end(ConnectionResetError(str(error)))

    async def write_all(self):
        error = None
        try:
            while (data := await self.out.get()) is not None:
                if data == b"":
                    await self.connection.shutdown()
                    continue
                await self.connection.send(data)
                self.unsent -= len(data)
                if self.is_protocol_paused and self.unsent <= self.low:
                    self.is_protocol_paused = False
                    self.protocol.resume_writing()
            await self.connection.close()
        except uct.Error as failed:
            error = ConnectionResetError(str(failed))
        await self.end(error)

    async def end(self, error):
        if self.connection is not None:
            self.connection.abort("the transport has ended")
            self.connection, self.is_ending = None, True
            for task in self.tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            self.loop.call_soon(self.protocol.connection_lost, error)

    def write(self, data):
        if self.is_ending:
            return
        # Bytes that the caller may change are copied here, as asyncio's transports do.
        for start in range(0, len(data), LIMIT):
            piece = bytes(data[start : start + LIMIT])
            self.unsent += len(piece)
            self.out.put_nowait(piece)
        if self.unsent > self.high and not self.is_protocol_paused:
            self.is_protocol_paused = True
            self.protocol.pause_writing()

    def write_eof(self):
        self.out.put_nowait(b"")

    def can_write_eof(self):
        return True

    def close(self):
        if not self.is_ending:
            self.is_ending = True
            self.out.put_nowait(None)

    def abort(self):
        self.loop.create_task(self.end(None))

    def is_closing(self):
        return self.is_ending

    def pause_reading(self):
        self.can_read.clear()

    def resume_reading(self):
        self.can_read.set()

    def is_reading(self):
        return self.can_read.is_set()

    def set_write_buffer_limits(self, high=None, low=None):
        self.high = LIMIT if high is None else high
        self.low = self.high // 4 if low is None else low

    def get_write_buffer_size(self):
        return self.unsent

    def get_protocol(self):
        return self.protocol

    def set_protocol(self, protocol):
        self.protocol = protocol


async def open_connection(net, address):
    """As `asyncio.open_connection`."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = Transport(await net.connect(address), protocol, loop)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def start_server(net, connected, address):
    """As `asyncio.start_server`: returns a listener, and a task that serves its callers until it is cancelled."""
    loop = asyncio.get_running_loop()
    listener = await net.listen(address)

    async def serve():
        async for connection in listener:
            reader = asyncio.StreamReader(loop=loop)
            Transport(connection, asyncio.StreamReaderProtocol(reader, connected, loop=loop), loop)

    return listener, loop.create_task(serve())


async def http(reader, writer):
    """A small HTTP/1.1 server: each request is answered with its path."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
            await writer.drain()
    except asyncio.IncompleteReadError:
        writer.close()


async def main(what, address, path="/"):
    async with aio.Net() as net:
        if what == "serve":
            listener, serving = await start_server(net, http, address)
            print("serving at", listener.address, flush=True)
            await serving
        reader, writer = await open_connection(net, address)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split()[0])
        print((await reader.readexactly(length)).decode())
        writer.close()
        await writer.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
