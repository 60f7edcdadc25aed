"""One of two MPI processes: rank 0 sends records as derived datatypes, rank 1 receives them.

Run by `mpiexec`, with an interpreter that has mpi4py and NumPy, and maybe nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Client, Connection
from typing import Any

import numpy as np
from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]

RECORDS = 48


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


def serve(pipe: Connection) -> None:
    """Transfer so many records of a dtype; between transfers nobody is inside MPI, which would keep a core busy."""
    world = MPI.COMM_WORLD
    pipe.send((world.rank, os.getpid()))
    while True:
        dtype, count = pipe.recv()
        kind, array = derived(dtype), np.zeros(RECORDS, dtype)
        world.Barrier()
        began = time.perf_counter()
        for number in range(count):
            place = [array[number % RECORDS :], 1, kind]
            if world.rank == 0:
                world.Send(place, 1)
            else:
                world.Recv(place, 0)
        world.Barrier()
        kind.Free()
        pipe.send(time.perf_counter() - began)


if __name__ == "__main__":
    try:
        with Client(sys.argv[1]) as connection:
            serve(connection)
    except (EOFError, ConnectionError):
        pass  # the benchmark has ended
