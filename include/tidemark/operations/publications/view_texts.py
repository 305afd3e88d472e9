"""SQL with which engines that have a catalog see a published table."""

from collections.abc import Mapping, Sequence


def view_texts(place: str, columns: Sequence[str], name: str) -> Mapping[str, str]:
    """Returns statements that make a view of a Delta table, by engine; for Trino in the schema of the session.

    Args:
        place: the table, a path or URL.
        columns: names of its columns.
        name: of the publication; the view gets a name that needs no quotes.
    """
    view, location = "".join(c if c.isalnum() else "_" for c in name), place if "://" in place else f"file://{place}"
    here = location.replace("'", "''")
    plain = ", ".join('"' + c.replace('"', '""') + '"' for c in columns)
    ticked = ", ".join("`" + c.replace("`", "``") + "`" for c in columns)
    make, table = f"CREATE OR REPLACE VIEW {view} AS", f"{view}_table"
    register = "CALL delta.system.register_table(schema_name => 'default', table_name =>"
    # For people to run elsewhere: no query of Tidemark's is made of these texts.
    trino = f"{make} SELECT {plain} FROM {table};"  # noqa: S608
    databricks = f"{make} SELECT {ticked} FROM delta.`{location}`;"  # noqa: S608
    return {"trino": f"{register} '{table}', table_location => '{here}');\n{trino}", "databricks": databricks}
