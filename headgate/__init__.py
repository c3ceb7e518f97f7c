"""What two or more headgate services need, and nothing else."""

from importlib.metadata import version

__version__ = version("headgate")
