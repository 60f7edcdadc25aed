"""Tests of the shells: threads and loops, without Ray."""
