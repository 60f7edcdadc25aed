"""What a declared type is as plain data, and which types go together. No bytes of events."""
