"""The in-memory twins of Kafka, Spark and Delta, which pass the same contract tests as the real ones."""
