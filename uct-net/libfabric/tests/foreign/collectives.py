"""Collective operations, each in its blocking and its nonblocking form."""

from array import array
from itertools import accumulate

from mpi4py import MPI

from content import SIZES, content, equal, freed, same

COUNTS = [0, 1, 5, 1000, 20000]


def both(comm, name, *arguments):
    """Calls an operation, and yields; then the nonblocking one, and yields."""
    getattr(comm, name)(*arguments)
    yield name
    getattr(comm, "I" + name.lower())(*arguments).Wait()
    yield "I" + name.lower()


def barriers(comm):
    for _ in range(50):
        comm.Barrier()
        comm.Ibarrier().Wait()


def broadcasts(comm):
    for root in range(comm.size):
        for size in SIZES:
            buffer = bytearray(content(size, root) if comm.rank == root else size)
            for name in both(comm, "Bcast", buffer, root):
                same(buffer, content(size, root), f"{name}, {size} bytes of {root}")
                if comm.rank != root:
                    buffer[:] = bytes(size)
            if size >= 1 << 20 and root > 0:
                break


def gathers_and_scatters(comm):
    size, rank = comm.size, comm.rank
    for count in (0, 1, 300, 30000):
        every = [content(count, source) for source in range(size)]
        for root in {0, size - 1}:
            target = bytearray(count * size) if rank == root else None
            for name in both(comm, "Gather", every[rank], target, root):
                if rank == root:
                    same(target, b"".join(every), name)
            part = bytearray(count)
            for name in both(comm, "Scatter", b"".join(every) if rank == root else None, part, root):
                same(part, every[rank], name)
        target = bytearray(count * size)
        for name in both(comm, "Allgather", every[rank], target):
            same(target, b"".join(every), name)


def gathers_and_scatters_of_different_sizes(comm):
    size, rank = comm.size, comm.rank
    for scale in (1, 500, 20000):
        counts = [(source * 7 + 3) % 5 * scale for source in range(size)]
        places = [0, *accumulate(counts)][:-1]
        every = [content(count, source) for source, count in enumerate(counts)]
        whole = b"".join(every)
        layout = (counts, places)
        target = [bytearray(len(whole)), layout, MPI.BYTE]
        for name in both(comm, "Gatherv", every[rank], target if rank == 0 else None, 0):
            if rank == 0:
                same(target[0], whole, name)
        part = bytearray(counts[rank])
        for name in both(comm, "Scatterv", [whole, layout, MPI.BYTE] if rank == 0 else None, part, 0):
            same(part, every[rank], name)
        target = [bytearray(len(whole)), layout, MPI.BYTE]
        for name in both(comm, "Allgatherv", every[rank], target):
            same(target[0], whole, name)


def all_to_all(comm):
    size, rank = comm.size, comm.rank
    for count in (0, 1, 100, 4000, 100000):
        source = b"".join(content(count, rank, to) for to in range(size))
        expected = b"".join(content(count, other, rank) for other in range(size))
        target = bytearray(count * size)
        for name in both(comm, "Alltoall", source, target):
            same(target, expected, name)
    for scale in (1, 700, 30000):
        def count(source, to):
            return (source * 3 + to) % 4 * scale

        sent = [count(rank, to) for to in range(size)]
        received = [count(source, rank) for source in range(size)]
        source = b"".join(content(n, rank, to) for to, n in enumerate(sent))
        expected = b"".join(content(n, other, rank) for other, n in enumerate(received))
        target = bytearray(sum(received))
        sent_at, received_at = [0, *accumulate(sent)][:-1], [0, *accumulate(received)][:-1]
        for name in both(
            comm, "Alltoallv", [source, (sent, sent_at), MPI.BYTE], [target, (received, received_at), MPI.BYTE]
        ):
            same(target, expected, name)
        target[:] = bytes(len(target))
        bytes_of_all = [MPI.BYTE] * size
        for name in both(
            comm, "Alltoallw", [source, (sent, sent_at), bytes_of_all], [target, (received, received_at), bytes_of_all]
        ):
            same(target, expected, name)


def numbers(rank, count, code):
    return array(code, [(rank * 31 + n * 7) % 97 - 40 for n in range(count)])


def combined(ranks, count, operation):
    every = [numbers(rank, count, "q") for rank in ranks]
    return [operation(column) for column in zip(*every)] if count else []


def reductions(comm):
    size, rank = comm.size, comm.rank
    for count in COUNTS:
        for operation, plain in ((MPI.SUM, sum), (MPI.MAX, max), (MPI.MIN, min)):
            for code in "qd":
                expected = combined(range(size), count, plain)
                target = array(code, [0] * count)
                for name in both(comm, "Allreduce", numbers(rank, count, code), target, operation):
                    equal(list(target), expected, f"{name} of {count}")
                root = size - 1
                for name in both(comm, "Reduce", numbers(rank, count, code), target, operation, root):
                    if rank == root:
                        equal(list(target), expected, f"{name} of {count}")
    flags = array("B", [rank & 1])
    every = array("B", [0])
    comm.Allreduce(flags, every, MPI.LOR)
    equal(every[0], int(size > 1), "one of them")


def prefixes_and_scattered_reductions(comm):
    size, rank = comm.size, comm.rank
    for count in COUNTS:
        target = array("q", [0] * count)
        for name in both(comm, "Scan", numbers(rank, count, "q"), target, MPI.SUM):
            equal(list(target), combined(range(rank + 1), count, sum), name)
        for name in both(comm, "Exscan", numbers(rank, count, "q"), target, MPI.SUM):
            if rank > 0:
                equal(list(target), combined(range(rank), count, sum), name)
        whole = combined(range(size), count * size, sum)
        part = array("q", [0] * count)
        for name in both(comm, "Reduce_scatter_block", numbers(rank, count * size, "q"), part, MPI.SUM):
            equal(list(part), whole[rank * count : (rank + 1) * count], name)
        counts = [count] * (size - 1) + [count + 3]
        whole = combined(range(size), sum(counts), sum)
        part = array("q", [0] * counts[rank])
        for name in both(comm, "Reduce_scatter", numbers(rank, sum(counts), "q"), part, counts, MPI.SUM):
            equal(list(part), whole[rank * count : rank * count + counts[rank]], name)


def several_at_once(comm):
    """Nonblocking operations that are in flight together."""
    count, depth = 2000, 20
    targets = [array("q", [0] * count) for _ in range(depth)]
    sources = [numbers(comm.rank + number, count, "q") for number in range(depth)]
    requests = [comm.Iallreduce(source, target) for source, target in zip(sources, targets)]
    MPI.Request.Waitall(requests)
    for number, target in enumerate(targets):
        expected = combined(range(number, number + comm.size), count, sum)
        equal(list(target), expected, f"operation {number}")


def neighbours(comm):
    ring = comm.Create_cart([comm.size], periods=[True])
    left, right = ring.Shift(0, 1)
    for count in (1, 50000):
        target = bytearray(2 * count)
        ring.Neighbor_allgather(content(count, ring.rank), target)
        same(target, content(count, left) + content(count, right), "what both neighbours have")
    ring.Free()


def parts_of_a_communicator(comm):
    """Groups, and messages between two groups."""
    half = comm.rank % 2
    with freed(comm.Split(half, comm.rank)) as part:
        equal(part.allreduce(comm.rank), sum(range(half, comm.size, 2)), "the sum of a half")
        if comm.size > 1:
            between = part.Create_intercomm(0, comm, 1 - half, 12)
            equal(between.allgather(comm.rank), list(range(1 - half, comm.size, 2)), "the other half")
            between.Free()
    # Objects, which the library sends as pickles of unknown length.
    equal(comm.alltoall([{"from": comm.rank, "to": to} for to in range(comm.size)])[0]["from"], 0, "objects")


OPERATIONS = [
    barriers,
    broadcasts,
    gathers_and_scatters,
    gathers_and_scatters_of_different_sizes,
    all_to_all,
    reductions,
    prefixes_and_scattered_reductions,
    several_at_once,
    neighbours,
    parts_of_a_communicator,
]
