"""Retention: which references keep files, which files may be deleted, and the sweep that deletes them."""
