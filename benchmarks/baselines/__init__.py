"""What the figures are compared with: Ray, bare sockets, pyzmq, NATS, Redis, Zenoh, gRPC, MPI, JSON."""
