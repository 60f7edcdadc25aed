"""The endpoint: the I/O around the protocol in each process that produces or consumes."""
