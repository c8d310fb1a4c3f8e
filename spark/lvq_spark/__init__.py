"""Last value queues in Spark."""
