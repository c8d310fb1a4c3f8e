"""The layout of a version on storage: base files, an overlay on top, and their writers."""
