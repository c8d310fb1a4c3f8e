"""Rows of current values as tables: Arrow, files that others read, and SQL (R49)."""
