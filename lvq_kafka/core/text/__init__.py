"""Checks of arguments, and text that is safe to show.

It imports nothing else of core.
"""
