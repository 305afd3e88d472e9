"""Metrics, lineage and deadlines: what a pipeline tells whoever watches it."""
