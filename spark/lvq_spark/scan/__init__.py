"""Reading one partition of a cut, from the log to Arrow."""
