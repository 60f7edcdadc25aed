"""What may be wrong with an installation, and what to do about it: facts are gathered here and there, judged purely."""
