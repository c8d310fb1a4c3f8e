"""The second engine: Spark's own Kafka connector."""
