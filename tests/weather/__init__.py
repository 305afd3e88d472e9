"""The weather demo's pipeline with a broker, a registry and Spark."""
