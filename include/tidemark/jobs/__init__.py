"""Entry points of Spark applications, which tasks call in-process or pass to spark-submit."""
