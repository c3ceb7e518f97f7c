"""REST: jobs on Slurm, submitted as the user's own local account."""
