"""Benchmarks of echannel_ray, each against its baselines in the same run.

`make bench`, or `python -m echannel_ray.benchmarks --help`.
"""

import os

# Ray reads these when it is imported, and each process that it starts inherits them.
os.environ.update(
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # binds to the node's address, 127.0.0.1, and not to the machine's own
    RAY_AUTH_MODE="disabled",  # a local Ray would write a token to the home directory
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",  # under `uv run`, workers would get a virtual environment of their own
)
