"""The public face of a producer."""

from __future__ import annotations

from echannel_ray import errors
from echannel_ray.retained.publisher import RetainedPublisher
from echannel_ray.runtime.offload import in_thread
from echannel_ray.runtime.owned import OwnedByProcess
from echannel_ray.runtime.publisher import Publisher


class Producer(OwnedByProcess, Publisher):
    """Publishes events on one channel; made by `EventChannel.producer`. Also a context manager, which closes it."""

    _advice = "a producer belongs to its process: pass the channel instead, and call channel.producer() there"

    def __repr__(self) -> str:
        return f"<producer {self.name} of channel {self.channel!r}{' (closed)' if self.stream.closed else ''}>"

    def close(self, timeout: float | None = None) -> None:
        """Drain, and leave the channel. A second call does nothing."""
        if self.stream.closed:
            return
        endpoint = self.endpoint
        if endpoint.closed or endpoint.broken is not None:
            self.stream.closed = True
            return
        try:
            if not self.stream.deleted:
                self.drain(timeout)
        finally:
            farewell = self.retire()
        try:
            endpoint.requests.ask(farewell)
        except errors.ChannelDeleted:
            pass  # nobody keeps its books any more

    async def aclose(self) -> None:
        """As `close`, without holding up the event loop."""
        await in_thread(self.close)


class RetainedProducer(Producer, RetainedPublisher):
    """A producer on a retained channel."""
