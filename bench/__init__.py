"""Benchmarks with their floors: what headgate costs beside the least that could do the work."""
