"""A process that writes to a log until it is killed, and prints what is done: `killed_process.py PATH`.

Each line is one acknowledgement: `append N OFFSET`, `stage N`, `commit N FIRST NEXT`, `abort N` or `trim FIRST`.
"""

import itertools
import sys
import time

from echannel_ray.logs.entries import Chosen, LogBounds, NewEntry, WriteAttempt
from echannel_ray.logs.store import Store

MAX_BYTES = 16 << 20
LARGE = 200_000  # bytes of a staged entry: several pages
HUGE = 3_000_000  # more than SQLite has in memory: it writes pages before the transaction ends
ENTRIES = 3


def appended(number: int) -> list[NewEntry]:
    """Two entries that say which append they are of; each tenth is huge."""
    data = b"append %d " % number + bytes(HUGE if number % 10 == 0 else 100)
    return [NewEntry(2, 1, 0, data, "p", 2 * number), NewEntry(1, 1, 0, data, "p", 2 * number + 1)]


def staged(number: int, partition: int, entry: int) -> NewEntry:
    """One that says to which write it belongs."""
    return NewEntry(1, 1, 0, b"write %d %d %d " % (number, partition, entry) + bytes(LARGE), "w")


def write(store: Store, number: int) -> str:
    """Two partitions, one of them with a loser; each fifth write is aborted."""
    name = f"write {number}"
    places = [(0, 0), (0, 1), (1, 0)]
    for (partition, attempt), entry in itertools.product(places, range(ENTRIES)):
        store.stage(WriteAttempt(name, partition, attempt), entry, staged(number, partition, entry), 3600, time.time())
    if number % 5 == 0:
        store.abort(name, time.time())
        return f"abort {number}"
    done = store.commit(name, [Chosen(0, 1, ENTRIES), Chosen(1, 0, ENTRIES)], time.time())
    return f"commit {number} {done.first} {done.next}"


def main() -> None:
    """Go on where the marks and the ledger say that the one before was killed."""
    store = Store(sys.argv[1], LogBounds(MAX_BYTES))
    first = store.mark_of("p") + 1
    print(f"open {first}", flush=True)
    for number in itertools.count(first):
        print(f"append {number} {store.append(appended(number), ('p', number))}", flush=True)
        if number % 4 == 0:
            print(write(store, number), flush=True)
        if number % 16 == 0:
            store.set_group("g", store.next)
            print(f"group {store.next}", flush=True)


if __name__ == "__main__":
    main()
