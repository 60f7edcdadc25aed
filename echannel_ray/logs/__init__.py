"""Retained channels: what was published is kept in a log at the node where it was published."""
