"""The protocol without any I/O: no sockets, threads, clocks, randomness or Ray; time comes in as `now`."""
