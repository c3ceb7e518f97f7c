"""The HTTP service's database."""
