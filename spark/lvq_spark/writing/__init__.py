"""What `lvq_spark.publish` is made of: rows, checks, and the tasks that write."""
