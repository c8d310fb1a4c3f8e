"""Spark sessions: started here, classic or remote, and the errors of their actions."""
