"""Access to the memory of other ranks: windows with every kind of synchronisation."""

from array import array

from mpi4py import MPI

from content import SIZES, content, equal, freed, generator, same


def puts_and_gets_between_fences(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for size in SIZES:
        memory = bytearray(size)
        with freed(MPI.Win.Create(memory, 1, comm=comm)) as window:
            source = content(size, comm.rank)
            window.Fence()
            window.Put(source, right)
            window.Fence()
            same(memory, content(size, left), f"put, {size} bytes")
            target = bytearray(size)
            window.Get(target, right)
            window.Fence()
            same(target, content(size, comm.rank), f"get, {size} bytes")


def places_in_a_window(comm):
    """Parts at odd offsets, from many ranks at once, beside which nothing changes."""
    part, gap = 5003, 13
    window = MPI.Win.Allocate(comm.size * (part + gap), 1, comm=comm)
    memory = window.tomemory()
    memory[:] = bytes(len(memory))
    sources = [content(part, comm.rank, to) for to in range(comm.size)]
    window.Fence()
    for to, source in enumerate(sources):
        window.Put(source, to, [comm.rank * (part + gap), part, MPI.BYTE])
    window.Fence()
    expected = b"".join(content(part, source, comm.rank) + bytes(gap) for source in range(comm.size))
    same(memory, expected, "all parts")
    window.Free()


def strided_puts_and_gets(comm):
    right = (comm.rank + 1) % comm.size
    count = 400
    strided = MPI.BYTE.Create_vector(count, 5, 11).Commit()
    memory = bytearray(count * 11)
    with freed(MPI.Win.Create(memory, 1, comm=comm)) as window:
        plain = content(count * 11, "strided")
        window.Fence()
        window.Put([plain, 1, strided], right, [0, 1, strided])
        window.Fence()
        expected = b"".join(
            plain[n * 11 : n * 11 + 5] + (bytes(6) if n < count - 1 else b"") for n in range(count)
        ).ljust(count * 11, b"\0")
        same(memory, expected, "strided put")
        target = bytearray(count * 5)
        window.Get(target, right, [0, 1, strided])
        window.Fence()
        same(target, b"".join(plain[n * 11 : n * 11 + 5] for n in range(count)), "strided get")
    strided.Free()


# With the second, MPICH leaves accumulating to the provider; with the first it sends messages.
WAYS = ({}, {"disable_shm_accumulate": "true", "accumulate_ordering": "none", "accumulate_ops": "same_op"})


def accumulates(comm):
    for way in WAYS:
        accumulates_in_a_way(comm, MPI.Info.Create(way))


def accumulates_in_a_way(comm, info):
    for count in (1, 100, 50000):
        for code in "iqd":
            memory = array(code, range(count))
            with freed(MPI.Win.Create(memory, memory.itemsize, info, comm)) as window:
                source, ones = array(code, [comm.rank + 1] * count), array(code, [1] * count)
                window.Fence()
                for to in range(comm.size):
                    window.Accumulate(source, to, op=MPI.SUM)
                window.Fence()
                total = sum(range(1, comm.size + 1))
                equal(list(memory), [n + total for n in range(count)], f"sums of {code}")
                window.Fence()
                fetched = array(code, [0] * count)
                to = (comm.rank + 1) % comm.size
                window.Get_accumulate(ones, fetched, to, op=MPI.REPLACE)
                window.Fence()
                equal(list(fetched), [n + total for n in range(count)], f"fetched {code}")
                equal(list(memory), [1] * count, f"replaced {code}")


def counters_that_all_share(comm):
    """Each value is fetched once, by whomever."""
    for way in WAYS:
        counters_in_a_way(comm, MPI.Info.Create(way))


def counters_in_a_way(comm, info):
    rounds = 100
    memory = array("q", [0, 0])
    with freed(MPI.Win.Create(memory if comm.rank == 0 else array("q"), 8, info, comm)) as window:
        window.Lock_all()
        seen = []
        one, old = array("q", [1]), array("q", [0])
        for _ in range(rounds):
            window.Fetch_and_op(one, old, 0, 0, MPI.SUM)
            window.Flush(0)
            seen.append(old[0])
        # The same by comparing and swapping.
        for _ in range(rounds // 10):
            value = array("q", [0])
            while True:
                more = array("q", [value[0] + 1])
                window.Compare_and_swap(more, value, old, 0, 1)
                window.Flush(0)
                if old[0] == value[0]:
                    break
                value[0] = old[0]
        window.Unlock_all()
        comm.Barrier()
        every = sorted(value for part in comm.allgather(seen) for value in part)
        equal(every, list(range(rounds * comm.size)), "the values that were fetched")
        window.Lock(0, MPI.LOCK_SHARED)
        final = array("q", [0, 0])
        window.Get(final, 0)
        window.Unlock(0)
        equal(list(final), [rounds * comm.size, rounds // 10 * comm.size], "the counters at the end")
        comm.Barrier()


def exclusive_locks(comm):
    """Reads and writes under a lock are one step."""
    rounds, size = 20, 3000
    memory = bytearray(size + 8)
    with freed(MPI.Win.Create(memory if comm.rank == 0 else bytearray(0), 1, comm=comm)) as window:
        for number in range(rounds):
            window.Lock(0, MPI.LOCK_EXCLUSIVE)
            found = bytearray(size + 8)
            window.Get(found, 0)
            window.Flush(0)
            count = int.from_bytes(found[:8], "little")
            if count:
                same(found[8:], content(size, "locked", count), "what another has written")
            source = (count + 1).to_bytes(8, "little") + content(size, "locked", count + 1)
            window.Put(source, 0)
            window.Unlock(0)
        comm.Barrier()
        if comm.rank == 0:
            window.Lock(0, MPI.LOCK_SHARED)
            equal(int.from_bytes(memory[:8], "little"), rounds * comm.size, "turns")
            window.Unlock(0)


def posts_and_starts(comm):
    if comm.size == 1:
        return
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    whole = comm.Get_group()
    size = 20000
    memory = bytearray(size)
    with freed(MPI.Win.Create(memory, 1, comm=comm)) as window:
        for number in range(10):
            window.Post(whole.Incl([left]))
            window.Start(whole.Incl([right]))
            source = content(size, comm.rank, number)
            window.Put(source, right)
            window.Complete()
            window.Wait()
            same(memory, content(size, left, number), f"round {number}")
    whole.Free()


def requests_of_windows(comm):
    """Many accesses in flight, in random places."""
    slots, size = 64, 700
    memory = bytearray(slots * size * comm.size)
    with freed(MPI.Win.Create(memory, 1, comm=comm)) as window:
        window.Lock_all()
        places = list(range(slots))
        generator(comm.rank).shuffle(places)
        requests = []
        for slot in places:
            for to in range(comm.size):
                at = (comm.rank * slots + slot) * size
                requests.append(window.Rput(content(size, comm.rank, slot), to, [at, size, MPI.BYTE]))
        MPI.Request.Waitall(requests)
        window.Flush_all()
        comm.Barrier()
        window.Sync()
        expected = b"".join(content(size, source, slot) for source in range(comm.size) for slot in range(slots))
        same(memory, expected, "all slots")
        to = (comm.rank + 1) % comm.size
        targets = [bytearray(size) for _ in range(slots)]
        gets = [window.Rget(targets[slot], to, [slot * size, size, MPI.BYTE]) for slot in places]
        MPI.Request.Waitall(gets)
        for slot, target in zip(places, targets):
            same(targets[slot], content(size, 0, slot), f"slot {slot}")
        window.Unlock_all()
        comm.Barrier()


def memory_that_is_attached_later(comm):
    window = MPI.Win.Create_dynamic(comm=comm)
    memory = MPI.memory.allocate(9000) if hasattr(MPI.memory, "allocate") else MPI.memory.frombuffer(bytearray(9000))
    memory[:] = content(9000, comm.rank)
    window.Attach(memory)
    addresses = comm.allgather(MPI.Get_address(memory))
    right = (comm.rank + 1) % comm.size
    target = bytearray(4000)
    window.Lock(right, MPI.LOCK_SHARED)
    window.Get(target, right, [addresses[right] + 1000, 4000, MPI.BYTE])
    window.Unlock(right)
    same(target, content(9000, right)[1000:5000], "attached memory")
    comm.Barrier()
    window.Detach(memory)
    window.Free()


OPERATIONS = [
    puts_and_gets_between_fences,
    places_in_a_window,
    strided_puts_and_gets,
    accumulates,
    counters_that_all_share,
    exclusive_locks,
    posts_and_starts,
    requests_of_windows,
    memory_that_is_attached_later,
]
