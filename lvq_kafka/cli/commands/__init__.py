"""The commands of ``lvq``, by what they are about."""
