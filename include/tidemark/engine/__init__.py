"""Everything that Spark executes; the only folder that imports pyspark. `job` is blind to it and knows the order."""
