"""Measure all pages of docs/benchmarks anew, on one commit and one machine, by one command that can be resumed."""
