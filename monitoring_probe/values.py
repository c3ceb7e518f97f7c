"""One value on its way to Zabbix: what it is, and when it was true."""

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A value of an item; `clock` and `ns` are fixed when it is measured, and never change.

    `clock` is seconds since the epoch, `ns` the nanoseconds within the second. A value sent twice
    with the same time is stored once.
    """

    host: str
    key: str
    value: str
    clock: int
    ns: int
