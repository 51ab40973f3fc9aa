"""Measure each millisecond of a job's start and end by kernel times, and the least possible times."""
