"""Be found, so that a job of mode jax starts. Its programs train nothing, and use none of it."""
