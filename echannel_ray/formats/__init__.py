"""How events become bytes and back, the body of a pack, and what a channel's type says. No I/O, no Ray calls."""
