"""Run the ring for a machine with one GPU and no registry: packed on CPUs, run by one command (tests/README.md)."""
