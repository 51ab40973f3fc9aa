"""The ring for a machine with one GPU and no registry: packed on CPUs, run there by one command (tests/README.md)."""
