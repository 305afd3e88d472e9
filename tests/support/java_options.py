"""Java options of test services."""

ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For a Spark server that tests share. It uses only the first JIT compiler: the second one, and the slow profiled code
that precedes it, took a third of the server's processor time. With one compiler the default code cache is so small that
the JVM sweeps it constantly; hence the larger one. All other options, including the collector, are those of users."""
