"""State that enters or leaves a warehouse: exports, imports, bootstrap and patch tables."""
