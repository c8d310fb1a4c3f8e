"""The same sends to this library and to other brokers: the same order comes out, or the rule that differs is named."""
