"""Contents that follow from a seed and from who sends what."""

import contextlib
import os
import random

SEED = int(os.environ.get("OPERATIONS_SEED", "1"))
# Below, at and above the limits of the protocols that libraries and providers choose among.
SIZES = [0, 1, 7, 8, 64, 65, 1000, 4096, 8191, 16384, 65536, 65537, 262144, 1 << 20, (1 << 20) + 3, 8 << 20]
SMALL = [size for size in SIZES if size <= 65537]


def generator(*who):
    """Random choices for this purpose, the same at every rank."""
    return random.Random(repr((SEED, who)))


def content(size, *who):
    """Bytes that nobody else sends."""
    return generator(size, *who).randbytes(size)


def same(found, expected, what):
    """Fails with the first difference."""
    found, expected = bytes(found), bytes(expected)
    if found == expected:
        return
    at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
    raise AssertionError(
        f"{what}: {len(found)} bytes, expected {len(expected)}; the first difference is at {at}:"
        f" {found[at : at + 16].hex()}, expected {expected[at : at + 16].hex()}"
    )


def equal(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: {found}, expected {expected}")


@contextlib.contextmanager
def freed(thing):
    """Frees a communicator or a window at the end."""
    yield thing
    thing.Free()
