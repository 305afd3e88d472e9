"""The outside worlds, one per file: Kafka, the local disk, S3, Delta commits, lineage, and memory for tests."""
