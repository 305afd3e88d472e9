"""The lineage of columns: which fields of which records make a column, and which decide it."""
