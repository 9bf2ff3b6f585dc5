"""Messages between two ranks: sizes, modes, order, tags, probes, cancellation, derived datatypes."""

import time
from array import array

from mpi4py import MPI

from content import SIZES, SMALL, content, equal, generator, same


def sizes_around_a_ring(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for size in SIZES:
        buffer = bytearray(size)
        status = MPI.Status()
        comm.Sendrecv(content(size, comm.rank), right, 5, buffer, left, 5, status)
        same(buffer, content(size, left), f"{size} bytes of {left}")
        equal((status.Get_count(MPI.BYTE), status.source, status.tag), (size, left, 5), "status")


def modes(comm):
    """Each mode of sending, to each rank, to itself too."""
    attached = bytearray(2 * sum(SMALL) + 100 * (MPI.BSEND_OVERHEAD + 64))
    MPI.Attach_buffer(attached)
    try:
        for distance in range(comm.size):
            to, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
            for size in SMALL:
                buffers = [bytearray(size) for _ in range(4)]
                receives = [comm.Irecv(buffer, source, tag) for tag, buffer in enumerate(buffers)]
                # A send in ready mode needs a receive that is posted.
                comm.Sendrecv(b"r", source, 99, bytearray(1), to, 99)
                sends = [
                    method(content(size, comm.rank, tag), to, tag)
                    for tag, method in enumerate((comm.Isend, comm.Issend, comm.Ibsend, comm.Irsend))
                ]
                MPI.Request.Waitall(receives + sends)
                for tag, buffer in enumerate(buffers):
                    same(buffer, content(size, source, tag), f"{size} bytes of {source} in mode {tag}")
    finally:
        MPI.Detach_buffer()


def unexpected_messages(comm):
    """All messages are there before their receives, which come in another order."""
    sizes = SMALL + [300_000, 1 << 20]
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sends = [comm.Isend(content(size, comm.rank, tag), right, tag) for tag, size in enumerate(sizes)]
    comm.Barrier()
    order = list(range(len(sizes)))
    generator("order", comm.rank).shuffle(order)
    for tag in order:
        buffer = bytearray(sizes[tag])
        comm.Recv(buffer, left, tag)
        same(buffer, content(sizes[tag], left, tag), f"tag {tag}")
    MPI.Request.Waitall(sends)


def many_in_order(comm):
    """Messages of one tag arrive in order, whatever their sizes."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sizes = generator("many").choices([0, 8, 100, 5000, 20000, 70000, 200000], k=200)
    receives = []
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers[:50]:
        receives.append(comm.Irecv(buffer, left, 1))
    sends = [comm.Isend(content(size, comm.rank, n), right, 1) for n, size in enumerate(sizes)]
    for buffer in buffers[50:]:
        receives.append(comm.Irecv(buffer, left, 1))
    MPI.Request.Waitall(receives + sends)
    for number, buffer in enumerate(buffers):
        same(buffer, content(sizes[number], left, number), f"message {number}")


def any_source_and_tag(comm):
    rounds = 30
    if comm.rank == 0:
        seen = {}
        for _ in range(rounds * (comm.size - 1)):
            status = MPI.Status()
            buffer = bytearray(20000)
            comm.Recv(buffer, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            source, tag = status.source, status.tag
            equal(tag, seen.get(source, 0), f"the next tag of {source}")
            seen[source] = tag + 1
            same(buffer[: status.Get_count(MPI.BYTE)], content(tag * 600, source, tag), f"of {source}")
        equal(seen, {source: rounds for source in range(1, comm.size)}, "messages of each")
    else:
        for tag in range(rounds):
            comm.Send(content(tag * 600, comm.rank, tag), 0, tag)


def all_pairs(comm):
    """Everybody with everybody at once."""
    for size in (0, 100, 40000, 500000):
        buffers = [bytearray(size) for _ in range(comm.size)]
        receives = [comm.Irecv(buffer, source, 2) for source, buffer in enumerate(buffers)]
        sends = [comm.Isend(content(size, comm.rank, to), to, 2) for to in range(comm.size)]
        MPI.Request.Waitall(receives + sends)
        for source, buffer in enumerate(buffers):
            same(buffer, content(size, source, comm.rank), f"{size} bytes of {source}")


def probes(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for size in (0, 10, 5000, 100000, 1 << 20):
        sends = [comm.Isend(content(size, comm.rank, tag), right, tag) for tag in (3, 4, 5, 6)]
        status = MPI.Status()
        comm.Probe(left, 4, status)
        equal((status.source, status.tag, status.Get_count(MPI.BYTE)), (left, 4, size), "probed")
        while not comm.Iprobe(MPI.ANY_SOURCE, 5, status):
            pass
        equal((status.source, status.Get_count(MPI.BYTE)), (left, size), "found by iprobe")
        equal(comm.Iprobe(left, 77), False, "a message that nobody sends")
        claimed = comm.Mprobe(MPI.ANY_SOURCE, 3, status)
        equal(comm.Iprobe(left, 3), False, "a message that is claimed")
        while (second := comm.Improbe(left, 5)) is None:
            pass
        for tag in (4, 6):
            buffer = bytearray(size)
            comm.Recv(buffer, left, tag)
            same(buffer, content(size, left, tag), f"tag {tag}")
        for tag, message in ((5, second), (3, claimed)):
            buffer = bytearray(size)
            message.Recv(buffer)
            same(buffer, content(size, left, tag), f"claimed, tag {tag}")
        MPI.Request.Waitall(sends)
        # The next messages have the same tags.
        comm.Barrier()


def cancelled_receives(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for _ in range(20):
        receives = [comm.Irecv(bytearray(100), source, 8) for source in (left, MPI.ANY_SOURCE)]
        status = MPI.Status()
        for receive in receives:
            receive.Cancel()
            receive.Wait(status)
            equal(status.Is_cancelled(), True, "cancelled")
        comm.Barrier()
        buffer = bytearray(50)
        comm.Sendrecv(content(50, comm.rank), right, 8, buffer, left, 8)
        same(buffer, content(50, left), "after that")


def truncated_messages(comm):
    """A message that is longer than the buffer is an error of its receive alone."""
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for size in (100, 30000, 300000):
        buffer, rest = bytearray(size // 2), bytearray(size)
        send = comm.Isend(content(size, comm.rank), right, 9)
        try:
            comm.Recv(buffer, left, 9)
        except MPI.Exception as error:
            equal(error.Get_error_class(), MPI.ERR_TRUNCATE, "the error")
        else:
            raise AssertionError(f"{size} bytes fitted into half of that")
        send.Wait()
        comm.Sendrecv(content(size, comm.rank, "next"), right, 10, rest, left, 10)
        same(rest, content(size, left, "next"), "the next message")


def derived_datatypes(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for count in (10, 3000, 100000):
        types = {
            "vector": MPI.BYTE.Create_vector(count, 3, 7),
            "indexed": MPI.BYTE.Create_indexed([1, 5, 2, count], [9, 0, 20, 30]),
            "struct": MPI.Datatype.Create_struct([1, 2, count], [0, 8, 40], [MPI.INT, MPI.DOUBLE, MPI.SHORT]),
            "subarray": MPI.BYTE.Create_subarray([count, 9], [count - 2, 4], [1, 3]),
            "resized": MPI.BYTE.Create_contiguous(count).Create_resized(0, count + 5),
        }
        for name, datatype in types.items():
            datatype.Commit()
            _, extent = datatype.Get_extent()
            span, size = extent * 2, datatype.Get_size() * 2
            mine, theirs = content(span, comm.rank, name), content(span, left, name)
            packed = bytearray(size)
            equal(datatype.Pack(theirs, packed, 0, comm), size, f"packed {name}")
            # From strides to plain bytes, and to strides.
            plain = bytearray(size)
            comm.Sendrecv([mine, 2, datatype], right, 1, plain, left, 1)
            same(plain, packed, f"{name} as bytes")
            target, expected = bytearray(span), bytearray(span)
            comm.Sendrecv([mine, 2, datatype], right, 1, [target, 2, datatype], left, 1)
            datatype.Unpack(packed, 0, expected, comm)
            same(target, expected, f"{name}, and what is beside it")
            datatype.Free()


def persistent_requests(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for size in (8, 20000, 400000):
        source, target = bytearray(size), bytearray(size)
        requests = [comm.Recv_init(target, left, 4), comm.Send_init(source, right, 4)]
        for number in range(10):
            source[:] = content(size, comm.rank, number)
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
            same(target, content(size, left, number), f"round {number}")
        for request in requests:
            request.Free()


def a_late_receiver(comm):
    """A rank that makes no calls for some time does not lose what others have sent."""
    if comm.rank == 0:
        time.sleep(0.3)
        for source in range(1, comm.size):
            for number in range(50):
                buffer = bytearray(30000)
                comm.Recv(buffer, source, number)
                same(buffer, content(30000, source, number), f"message {number} of {source}")
    else:
        sends = [comm.Isend(content(30000, comm.rank, number), 0, number) for number in range(50)]
        MPI.Request.Waitall(sends)


def numbers_of_every_type(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for code in "bBhHiIlLqQfd":
        mine, expected = ([(rank * 3 + n) % 120 for n in range(500)] for rank in (comm.rank, left))
        target = array(code, [0] * 500)
        comm.Sendrecv(array(code, mine), right, 1, target, left, 1)
        equal(list(target), expected, f"numbers of {code}")


OPERATIONS = [
    sizes_around_a_ring,
    modes,
    unexpected_messages,
    many_in_order,
    any_source_and_tag,
    all_pairs,
    probes,
    cancelled_receives,
    truncated_messages,
    derived_datatypes,
    persistent_requests,
    a_late_receiver,
    numbers_of_every_type,
]
