"""The format ``lvq``, a data source of Spark's."""
