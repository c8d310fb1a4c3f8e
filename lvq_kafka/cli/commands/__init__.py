"""The commands of ``lvq``, by topic."""
