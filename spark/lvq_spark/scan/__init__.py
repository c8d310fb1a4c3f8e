"""Reading a partition of a cut: from the log to Arrow."""
