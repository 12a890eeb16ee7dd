"""Identification numerics: NumPy arrays in, NumPy arrays out; no I/O, clock, logging, thread or socket."""
