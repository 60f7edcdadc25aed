"""Shared objects: masters, and copies in other processes and in sandboxes."""
