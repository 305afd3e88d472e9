"""SQL over stored rows: fold columns, the resolving query, map entries, schema mappings, stored queries."""
