"""Retention: what is kept, what goes, and that nothing that is needed ever does."""
