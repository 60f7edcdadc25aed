"""Many records at once: how the blocks of `publish_many` of an array or record batch go to consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echannel_ray.core.segments import Placed
from echannel_ray.core.windows import holds_up, refuses
from echannel_ray.derived.branch import Chunk
from echannel_ray.endpoint.record_codec import BLOCK_BYTES, Data
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.producers.local_source import NOTHING

if TYPE_CHECKING:
    from echannel_ray.producers.consumer_sink import ConsumerSink


def publish_block(sink: ConsumerSink, kind: int, data: Data | Placed, count: int) -> bool:
    """Publish a block, as soon as there is room for all of it; False when the overflow policy dropped a record for a
    consumer.
    """
    assert sink.records is not None
    data = sink.placed_block(data)
    size_bytes = data.size_bytes if isinstance(data, Placed) else len(data)
    if size_bytes > 2 * BLOCK_BYTES and not isinstance(data, Placed):
        # As long as those in segments are, and none was to be had.
        parts = sink.records.parts(kind, data, count)
        if len(parts) > 1:
            complete = True
            for part in parts:
                complete &= publish_block(sink, kind, *part)
            return complete
    size = size_bytes + OVERHEAD_BYTES
    stream = sink.stream
    publisher = sink.publisher
    borrows = has_room = False
    while True:
        with sink.lock:
            publisher.check_accepting()
            sink.absorb()
            if not sink.is_halted:
                # Larger ones would fit into no frame: single records go in chunks.
                is_long = size_bytes > 2 * BLOCK_BYTES and not (isinstance(data, Placed) and sink.outlet.lends(data))
                is_special = is_long or stream.groups or stream.laggards
                if is_special or not holds_up(stream.overflow):
                    break  # who gets which of them, and who none, is decided record by record
                blockers = sink.blockers(size)
                if blockers and refuses(stream.overflow):
                    raise publisher.overloaded(blockers[0])
                has_room = not blockers
                if has_room:
                    borrows = _send(sink, kind, data, count, size)
        if has_room:
            sink.endpoint.outgoing.write()
            if borrows:
                sink.branches.quiesce()  # before the caller changes what is still his
            elif sink.has_branches:
                sink.branches.advance()
            return True
        publisher.room.wait(size, None, None)
    complete = True
    for each in sink.records.each(kind, data[0] if isinstance(data, Placed) else data, count):
        complete &= publisher.publish_encoded(NOTHING, None, each)
    return complete


def _send(sink: ConsumerSink, kind: int, block: Data | Placed, count: int, size: int) -> bool:
    """Whether what was fed to E-code is the caller's own memory still: filtering copies what passes anyhow."""
    assert sink.records is not None
    outlet = sink.outlet
    borrows = sink.has_branches and not outlet.has_consumers and sink.branches.are_ecode()
    if not borrows and not isinstance(block, Placed):
        block = sink.records.kept(block)
    if sink.has_branches:
        chunk = Chunk(kind, [block], None, size, count=count)
        chunk.is_borrowed = borrows
        sink.branches.feed(chunk)
    if outlet.has_consumers:
        outlet.send_block(kind, block, count, size)
    else:
        sink.endpoint.core.skip(sink.stream, count)
    return borrows
