"""Derived channels at a producer: modulators and programs, installed and at work."""
