"""The engine on real Spark, Kafka and Delta: one Connect server and one broker for all tests."""
