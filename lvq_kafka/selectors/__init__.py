"""Selectors: conditions on messages, in the syntax of JMS."""
