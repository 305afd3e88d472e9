"""Kafka: the log for planners, records by offset, and the producer of the outbox."""
