"""Bad input, broken places and rivals, through the real line: broker, Spark, Delta, command line."""
