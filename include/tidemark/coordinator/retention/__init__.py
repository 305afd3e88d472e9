"""Retention: what keeps files, which may go, and the sweep that deletes them."""
