"""Giving up root for good: what belongs to a service is touched as that service."""

import os
import pwd
from pathlib import Path

from headgate.settings import SettingsError


def owner_of(folder: Path) -> pwd.struct_passwd:
    """The user whom a folder belongs to.

    Raises:
        SettingsError: it is not there, or its owner has no name.
    """
    try:
        return pwd.getpwuid(folder.stat().st_uid)
    except OSError as error:
        raise SettingsError(f"{folder}: {error.strerror}") from error
    except KeyError as error:
        raise SettingsError(f"the owner of {folder} has no name") from error


def become(owner: pwd.struct_passwd) -> None:
    """Be that user from now on; nothing to do for anybody who is not root."""
    if os.geteuid() != 0 or owner.pw_uid == 0:
        return
    os.initgroups(owner.pw_name, owner.pw_gid)
    os.setresgid(owner.pw_gid, owner.pw_gid, owner.pw_gid)
    os.setresuid(owner.pw_uid, owner.pw_uid, owner.pw_uid)
