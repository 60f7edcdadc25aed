"""The endpoint of a process: its link, its threads, what it asks of others; it performs what the core decides."""
