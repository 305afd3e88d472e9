"""Everything that Spark executes. Only this folder imports pyspark; `job`, which knows the order of steps, does not."""
