"""Channels as sources and sinks of other libraries, built on the public API."""
