"""The consumer group that holds what was consumed of a queue: its commits, judged."""
