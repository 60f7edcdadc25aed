"""The demonstration: a local Ray of two nodes, a producer, five consumers, and a part that is killed in the middle.

`python -m echannel_ray.demo`, `echannel demo` or `make demo`. It takes half a minute, ends by itself, and leaves
nothing behind; its exit code is 0 only if every event arrived once and in order.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130


def run() -> int:
    """Run the demonstration; the exit code."""
    try:
        from echannel_ray.demo.machine import two_nodes

        with two_nodes() as nodes:
            from echannel_ray.demo.scenario import play  # imports Ray, whose environment is set now

            return 0 if play(nodes) else 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
