"""How many connections this process has file descriptors for."""

import resource

import msgspec

from token_translator.frontdoor.limits import LimitSettings

OWN = 64
"""Descriptors that are no visitor's: files, the feed, the translator, and some to spare."""


def raised() -> int:
    """Take as many descriptors as the hard limit allows; how many that are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def fitted(limits: LimitSettings, descriptors: int) -> LimitSettings:
    """The limits, with no more connections than there are descriptors for.

    A connection needs one for the visitor, one for the login node and one for each jump.
    """
    room = max(1, (descriptors - OWN) // (2 + limits.channels))
    if limits.connections <= room:
        return limits
    half_open = max(1, min(limits.half_open, room // 2))
    return msgspec.structs.replace(limits, connections=room, half_open=half_open)
