"""List the libraries of others: trackers, data, JAX and the like."""

from case import Case

CASES: list[Case] = []
