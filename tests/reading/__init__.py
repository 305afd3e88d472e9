"""Reading state without a JVM: SQL, diffs, hashes, over real Delta tables that no Spark has written."""
