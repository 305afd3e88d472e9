"""Process operators in Spark's Python workers."""
