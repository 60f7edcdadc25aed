"""Benchmarks of echannel_ray, each against its baselines in the same run.

`make bench`, or `python -m echannel_ray.benchmarks --help`.
"""

import os

# Ray reads this when it is imported. Without it Ray listens on the machine's own address, not on the node's.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
