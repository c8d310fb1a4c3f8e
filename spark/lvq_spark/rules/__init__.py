"""The rules of a queue as columns: expiry, schedules, groups, ranks, merged partitions."""
