"""The values of a view in a directory: LMDB files, and the lock of their writer."""
