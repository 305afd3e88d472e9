"""Offsets, types, names, canonical JSON and time to live: the values that all others are made of."""
