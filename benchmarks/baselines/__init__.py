"""What the figures are compared with: Ray actor calls, bare sockets, a hand-written packed loop, pyzmq."""
