"""The cut of a snapshot: its pinned offsets and times, and the options that name them."""
