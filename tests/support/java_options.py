"""Java options of test services."""

from tests.support.scale import SCALE

ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For a Spark server that tests share. It uses only the first JIT compiler: the second one, and the slow profiled code
that precedes it, took a third of the server's processor time. With one compiler the default code cache is so small that
the JVM sweeps it constantly; hence the larger one. All other options, including the collector, are those of users."""
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
"""Makes Spark interpret expressions: for the few records of a test, compiling a query is rarely worth it. With
`TIDEMARK_TEST_SCALE`, as in `make test-nightly`, and in all tests with a server of their own, such as the demos,
how-tos and clusters, Spark generates code as it does for users."""
SHARED = ONE_COMPILER if SCALE > 1 else f"{ONE_COMPILER} {INTERPRETED}"
"""The options of the server that tests share."""
