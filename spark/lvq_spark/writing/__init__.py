"""The parts of `lvq_spark.publish`: rows, checks, and the tasks that write."""
