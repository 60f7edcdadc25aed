"""Events of typed channels as bytes of known formats, and back in each consumer's terms. No I/O."""
