"""The stored schema of an operator: fields and their kinds, key groups, and how a declaration binds to it."""
