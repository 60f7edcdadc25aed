"""Who is let in, and what is left of those who are not: attacks on running namespaces."""
