"""Bound the size of one record."""

RECORD_BYTES = 64 << 20  # per host, compressed: monitors write no more, and the coordinator accepts no more
