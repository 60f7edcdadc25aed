"""`python -m echannel_ray.cli`: the command where it is not on the path."""

from echannel_ray.cli import main

main()
