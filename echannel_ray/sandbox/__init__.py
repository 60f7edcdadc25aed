"""Processes for code that nobody trusts: how they are made, locked down, spoken to and watched."""
