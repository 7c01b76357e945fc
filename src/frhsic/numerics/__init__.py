"""Numerics that measures and inference share: for this package only, nothing here is public."""
