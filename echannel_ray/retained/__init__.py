"""Retained channels at work: who publishes into logs, who reads them, and the keeper that has them."""
