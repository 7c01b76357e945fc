"""Time and memory of one machine."""
