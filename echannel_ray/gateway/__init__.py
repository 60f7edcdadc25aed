"""The gateway: a port of a node's concentrator for clients that are not in Ray."""
