"""Queues and GPUs as GLUE 2.1."""
