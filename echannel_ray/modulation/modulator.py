"""The two halves of an eager handler: the modulator travels to the producers, the demodulator stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import override


class Modulator:
    """Works on events before anything crosses a wire; one replica in (or beside) each producer.

    Override `enqueue` (or, for a source of its own, `period`); the rest as needed:

        class Expensive(echannel_ray.Modulator):
            def __init__(self, low):
                self.low = low

            def enqueue(self, event):
                if event["price"] > self.low:
                    self.emit(event)

        trades.subscribe(handler, modulator=Expensive(80))

    In a sandbox (the default) it may emit the events that it was given, also later, and plain data: None, numbers,
    text, bytes, lists, tuples, dicts, sets, dates, NumPy arrays of numbers. What it may use is in `Admission`.

    `requires` are the services that it can't work without (Protocol classes, or their qualified names), and `services`
    the handles that its producer granted, once it is installed. `period_seconds` is how often `period` runs; None is
    never.
    """

    requires: tuple[Any, ...] = ()
    period_seconds: float | None = None
    services: Mapping[Any, Any]

    def enqueue(self, event: Any) -> None:
        """An event was published: `emit` what should travel. (`FIFOModulator` passes everything on.)"""

    def dequeue(self, event: Any) -> Any:
        """The transport is ready to send this emitted event: what to send, or None for nothing.

        A modulator that overrides this may keep a queue of its own, and return another event than its argument.
        """
        return event

    def period(self) -> None:
        """Runs every `period_seconds`; may emit."""

    def flush(self) -> None:
        """Runs before `reset`, `drain` and `close`: emit what is held back."""

    def key(self) -> Any:
        """Plain data: modulators of the same code with equal keys share one derived channel. By default the state
        counts.
        """
        return None

    def emit(self, event: Any) -> None:
        """Have the event travel. The environment gives each replica its own."""
        raise RuntimeError(
            f"{type(self).__name__}.emit works at the producer only: pass the modulator to subscribe() or derive()"
        )


class FIFOModulator(Modulator):
    """Passes every event on, in order: the base of those that change or drop some."""

    @override
    def enqueue(self, event: Any) -> None:
        self.emit(event)


class Demodulator:
    """Stays at the consumer: undoes or completes what the modulator did, just before the handler.

    Any object with these methods will do.
    """

    period_seconds: float | None = None
    """How often `period` runs; None is never."""

    def receive(self, event: Any) -> Iterable[Any]:
        """An event has arrived: what the handler is to get, none or several."""
        return (event,)

    def period(self) -> Iterable[Any]:
        """Runs every `period_seconds`: what the handler is to get besides."""
        return ()


def overrides(modulator: Modulator, method: str) -> bool:
    """Whether the class of this modulator has a method of its own in the place of the base's."""
    return getattr(type(modulator), method) is not getattr(Modulator, method)
