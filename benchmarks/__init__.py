"""Benchmarks of frhsic: one command for each committed result. Outside the wheel, public API only."""
