"""Many records at once: how `publish_many` of an array or record batch sends its blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from echannel_ray.core.windows import holds_up, refuses
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.runtime.branch import Chunk
from echannel_ray.runtime.local_source import NOTHING
from echannel_ray.runtime.typed import BLOCK_BYTES, Data

if TYPE_CHECKING:
    from echannel_ray.runtime.publisher import Publisher


def publish_blocks(publisher: Publisher, blocks: Iterable[tuple[int, Data, int]]) -> bool:
    """Publish blocks, each a (kind, records, count) and as soon as there is room for all of it; False when the overflow
    policy dropped a record for a consumer.
    """
    complete = True
    for kind, data, count in blocks:
        complete &= _publish(publisher, kind, data, count)
    return complete


def _publish(publisher: Publisher, kind: int, data: Data, count: int) -> bool:
    size = len(data) + OVERHEAD_BYTES
    stream = publisher.stream
    borrows = has_room = False
    while True:
        with publisher.endpoint.lock:
            publisher.check_accepting()
            publisher.absorb()
            if not publisher.is_halted:
                # Larger ones would fit into no frame: single records go in chunks.
                is_special = len(data) > 2 * BLOCK_BYTES or stream.groups or stream.laggards
                if is_special or not holds_up(stream.overflow):
                    break  # who gets which of them, and who none, is decided record by record
                blockers = publisher.room.blockers(size)
                if blockers and refuses(stream.overflow):
                    raise publisher.overloaded(blockers[0])
                has_room = not blockers
                if has_room:
                    borrows = _send(publisher, kind, data, count, size)
        if has_room:
            publisher.endpoint.outgoing.write()
            if borrows:
                publisher.branches.settle()  # before the caller changes what is still his
            elif publisher.has_branches:
                publisher.branches.advance()
            return True
        publisher.room.wait(size, None, None)
    assert publisher.records is not None
    complete = True
    for each in publisher.records.each(kind, data, count):
        complete &= publisher.publish_encoded(NOTHING, None, each)
    return complete


def _send(publisher: Publisher, kind: int, block: Data, count: int, size: int) -> bool:
    """Whether what was fed to E-code is the caller's own memory still: filtering copies what passes anyhow."""
    assert publisher.records is not None
    outlet = publisher.outlet
    borrows = publisher.has_branches and not outlet.has_consumers and publisher.branches.are_ecode()
    if not borrows:
        block = publisher.records.kept(block)
    if publisher.has_branches:
        chunk = Chunk(kind, [block], None, size, count=count)
        chunk.is_borrowed = borrows
        publisher.branches.feed(chunk)
    if outlet.has_consumers:
        outlet.send_block(kind, block, count, size)
    else:
        publisher.endpoint.core.skip(publisher.stream, count)
    return borrows
