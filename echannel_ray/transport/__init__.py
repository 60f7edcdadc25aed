"""Frames over sockets: Unix sockets within a node, TCP with TLS between nodes, and one in memory."""
