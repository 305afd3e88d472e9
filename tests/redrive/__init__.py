"""Redrives of dead letters: what a plan freezes, what an engine applies, and what a person types."""
