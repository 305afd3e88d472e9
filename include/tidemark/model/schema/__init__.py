"""The stored schema of an operator: fields and their kinds, key groups, and the binding of a declaration."""
