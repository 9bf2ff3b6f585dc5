"""Several threads of each rank call at once."""

import threading

from mpi4py import MPI

from content import content, equal, same

THREADS = 4


def run(body, comms):
    """Runs `body(thread, comm)` in threads, and fails as the first one that fails."""
    failures = []

    def guarded(number, comm):
        try:
            body(number, comm)
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=guarded, args=pair) for pair in enumerate(comms)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def messages_of_threads(comm):
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def body(number, comm):
        for turn in range(15):
            for size in (0, 8, 3000, 90000):
                buffer = bytearray(size)
                comm.Sendrecv(content(size, comm.rank, number, turn), right, number, buffer, left, number)
                same(buffer, content(size, left, number, turn), f"thread {number}, turn {turn}")

    # In one communicator, told apart by tags.
    run(body, [comm] * THREADS)


def collectives_of_threads(comm):
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return

    def body(number, comm):
        for turn in range(15):
            equal(comm.allreduce(comm.rank + number), sum(range(comm.size)) + number * comm.size, f"turn {turn}")
            buffer = bytearray(content(30000, number, turn) if comm.rank == 0 else 30000)
            comm.Bcast(buffer, 0)
            same(buffer, content(30000, number, turn), f"broadcast of thread {number}")

    comms = [comm.Dup() for _ in range(THREADS)]
    run(body, comms)
    for each in comms:
        each.Free()


OPERATIONS = [messages_of_threads, collectives_of_threads]
