"""Operations of MPI whose results are checked: what a provider of libfabric has to carry for an MPI library.

Usage: mpiexec -n RANKS python operations.py [NAME ...]; without names all of them. The contents follow from OPERATIONS_SEED.
The modules beside this one have the operations. OPERATIONS_THREAD_LEVEL is what the library is asked
for. The process ends itself after OPERATIONS_SECONDS.
"""

import faulthandler
import os
import sys
import time

import mpi4py

mpi4py.rc.thread_level = os.environ.get("OPERATIONS_THREAD_LEVEL", "multiple")
from mpi4py import MPI  # noqa: E402

import collectives  # noqa: E402
import messages  # noqa: E402
import threads  # noqa: E402
import windows  # noqa: E402
from content import SEED, freed  # noqa: E402

OPERATIONS = {
    function.__name__: function
    for module in (messages, collectives, windows, threads)
    for function in module.OPERATIONS
}


def main():
    faulthandler.enable()
    faulthandler.dump_traceback_later(int(os.environ.get("OPERATIONS_SECONDS", "120")), exit=True)
    world = MPI.COMM_WORLD
    names = sys.argv[1:] or list(OPERATIONS)
    if world.rank == 0:
        print(f"{MPI.Get_library_version().splitlines()[0].strip()}, {world.size} ranks, OPERATIONS_SEED={SEED}", flush=True)
    for name in names:
        began = time.monotonic()
        try:
            with freed(world.Dup()) as comm:
                OPERATIONS[name](comm)
                comm.Barrier()
        except BaseException:
            import traceback

            print(f"rank {world.rank}: {name} failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            world.Abort(1)
        if world.rank == 0:
            print(f"{name}: {time.monotonic() - began:.2f} s", flush=True)
    if world.rank == 0:
        print(f"{len(names)} passed", flush=True)


main()
