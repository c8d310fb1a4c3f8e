"""Last value queues on Apache Kafka."""
