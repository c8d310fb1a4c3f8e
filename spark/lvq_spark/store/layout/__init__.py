"""How a version lies on storage: the files of a base, an overlay upon them, and what writes both."""
