"""Modulators and demodulators for everyday use, built on the public API."""
