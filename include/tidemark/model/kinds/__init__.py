"""The kinds of state, one class in one file each; `registry` lists all of them.

A kind defines everything about one `state.<name>(...)`: its declaration, the columns that store it, the SQL that folds,
merges and finishes it in Spark and DuckDB, the same in Python for the twin, and how an imported table becomes rows of
it. The rest of the package asks a field for its kind (`StoredField.state_kind`) and never compares names. To add a
kind, write its file, add a line to `registry`, and test it: `tests/unit/model/kinds` walks the registry.
"""
