"""The format ``lvq``, a data source for Spark."""
