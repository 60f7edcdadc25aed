"""`python -m echannel_ray.demo`."""

import sys

from echannel_ray.demo import run

sys.exit(run())
