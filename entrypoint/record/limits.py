"""Bound what one record may be."""

RECORD_BYTES = 64 << 20  # of one host, compressed: monitors write no more, and the coordinator takes no more
