"""One of two MPI processes: rank 0 sends records as derived datatypes, rank 1 receives them and may answer.

Run by `mpiexec` as a program of its own: neither Ray nor this package is loaded.
"""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Client, Connection
from typing import Any

import numpy as np
from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]


def derived(dtype: np.dtype[Any]) -> Any:
    """The MPI datatype of these records: a struct of their fields, each where it lies."""
    lengths, offsets, types = [], [], []
    for name in dtype.names or ():
        field = dtype[name]
        base = field.base
        lengths.append(int(np.prod(field.shape)))
        offsets.append(int(dtype.fields[name][1]))  # type: ignore[index]
        types.append(MPI.Datatype.fromcode(base.char) if base.names is None else derived(base))
    return MPI.Datatype.Create_struct(lengths, offsets, types).Create_resized(0, dtype.itemsize).Commit()


def doubles_of(dtype: np.dtype[Any]) -> int:
    """How many doubles a record is, where it is nothing else, side by side; else none."""
    fields = [dtype[name].base for name in dtype.names or ()]
    return dtype.itemsize // 8 if all(field == np.float64 for field in fields) else 0


def serve(pipe: Connection) -> None:
    """Transfer messages of `each` records; between transfers nobody is inside MPI, which would keep a core busy."""
    world = MPI.COMM_WORLD
    pipe.send((world.rank, os.getpid()))
    while True:
        way, dtype, records, messages, each = pipe.recv()
        kind, array = derived(dtype), np.zeros(records, dtype)
        doubles = doubles_of(dtype)
        flat = array.view(np.float64) if doubles else array
        array.view(np.uint8)[:] = 1  # memory that nobody has written to is one page of zeros, which is always cached
        world.Barrier()
        began = time.perf_counter()
        for number in range(messages):
            at = number * each % records
            if doubles:  # for which MPI needs no datatype of ours, and is quicker
                place = [flat[at * doubles : (at + each) * doubles], MPI.DOUBLE]
            else:
                place = [array[at : at + each], each, kind]
            if world.rank == 0:
                world.Send(place, 1)
                if way == "there and back":
                    world.Recv(place, 1)
            else:
                world.Recv(place, 0)
                if way == "there and back":
                    world.Send(place, 0)
        world.Barrier()
        kind.Free()
        pipe.send(time.perf_counter() - began)


if __name__ == "__main__":
    try:
        with Client(sys.argv[1]) as connection:
            serve(connection)
    except (EOFError, ConnectionError):
        pass  # the benchmark has ended
