"""Faults that are injected into real processes, each followed by a plain re-run."""
