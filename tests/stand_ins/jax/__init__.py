"""Simulate jax, so that a job of mode jax starts. The programs of such jobs use no function of it."""
