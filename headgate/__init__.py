"""What two or more headgate services need, and nothing else."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """`__version__`, looked up when it is asked for: that takes longer than a whole ssh-renew."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import version  # noqa: PLC0415 - see above

    return version("headgate")
