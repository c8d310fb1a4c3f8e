"""The parts of a queue that a cluster holds: its definition, its topic, and its group."""
