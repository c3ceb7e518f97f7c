"""Reading a Slurm cluster: one model, one reading port, several adapters."""
