"""Measure each millisecond of a job's start and end by the kernel's own times, and the floors below them."""
