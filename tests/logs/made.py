"""Entries that tests append, and what they look like when they come back."""

from echannel_ray.logs.entries import Entry, LogBounds, NewEntry
from echannel_ray.logs.store import Store

UNBOUNDED = LogBounds()


def entry(data=b"data", count=1, producer="p", sequence=0):
    return NewEntry(count, kind=1, token=7, data=data, producer=producer, sequence=sequence, published_at=12.5)


def entries_of(store: Store, max_bytes=1 << 20) -> list[Entry]:
    """All that is retained, read piece by piece."""
    found: list[Entry] = []
    offset = store.first
    while some := store.read(offset, max_bytes):
        found += some
        offset = found[-1].next
    return found


def data_of(store: Store) -> list[bytes]:
    return [each.data for each in entries_of(store)]


def check(store: Store) -> None:
    """What has to hold at any time while nobody changes anything."""
    found = entries_of(store)
    offsets = [each.first for each in found]
    assert offsets == [store.first, *(each.next for each in found[:-1])][: len(found)]
    assert (found[-1].next if found else store.first) == store.next
    assert sum(len(each.data) for each in found) == store.size_bytes
