"""What runs on login nodes: one self-contained program, copied there, importing nothing of ours."""
