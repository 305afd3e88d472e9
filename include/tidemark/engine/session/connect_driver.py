"""The application of the embedded Spark, run by spark-submit: a driver whose plugin serves Connect.

Spark's own server class gives every session a class loader, for classes that its client may send, and so compiles the
queries of each session anew, although ours send none (docs/adr/0011). It leaves no way to say otherwise; an
application of one's own does.
"""

import sys


def main() -> None:
    """Serves until the JVM is gone, which closes this process's standard input."""
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
