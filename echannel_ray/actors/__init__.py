"""The parts that run as Ray actors: name server, channel managers and concentrators."""
