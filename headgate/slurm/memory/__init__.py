"""A simulated cluster: one process on a unix socket that runs batch scripts as local processes."""
