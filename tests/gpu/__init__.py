"""Run tests on a machine with one GPU and no registry, packed elsewhere, by one command (tests/README.md)."""
