"""Record formats."""
