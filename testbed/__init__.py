"""A whole HPC site on one machine, from distribution packages: for demo, tests and benchmarks."""
