"""The in-memory twins of Kafka, Spark and Delta, held to the same contract tests as the real ones."""
