"""From a specification to what sbatch gets: one generator of scripts, one module per runtime."""
