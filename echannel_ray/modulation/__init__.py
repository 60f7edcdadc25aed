"""What consumers ship into producers: modulators, what they may ask of their producer, and how they are compared."""
