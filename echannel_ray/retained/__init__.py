"""Retained channels at work: who publishes into logs, who reads them, and the log host that has them."""
