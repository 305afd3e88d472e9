"""Options for the Java of test services."""

ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For a Spark that tests share: a third of its processor time went into the second compiler, and into what waited for
it in slow code that counts. With one compiler alone the cache of code is small, and a sweeper is busy in it throughout.
Everything else, the collector as well, is what users have."""
