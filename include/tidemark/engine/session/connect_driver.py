"""The application of the embedded Spark, run by spark-submit: a driver whose plugin serves Connect.

Spark's own server class gives every session a class loader for classes that its client may send. So it compiles the
queries of each session again, although Tidemark sends no classes (docs/adr/0011). No option turns this off, but a
separate application does.
"""

import sys


def main() -> None:
    """Serves until the JVM exits, which closes the standard input of this process."""
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
