"""Kafka: the log as planners ask it, records by offset, and the producer of the outbox."""
