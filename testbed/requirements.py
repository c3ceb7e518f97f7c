"""What a machine must have before a site can be on it: root, and the distribution's programs."""

import os
import shutil
from collections.abc import Mapping

from testbed.instances import InstanceError
from testbed.processes import PATH

# A program of each package that the site is made of.
_PROGRAMS: Mapping[str, str] = {
    "mariadbd": "mariadb-server",
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmdbd": "slurmdbd",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "umoci": "umoci",
    "proot": "proot",
    "curl": "curl",
    "busybox": "busybox-static",
}


def require_machine() -> None:
    """Return if a site can be made here.

    Raises:
        InstanceError: not root, or packages are missing; it says which.
    """
    if os.geteuid() != 0:
        raise InstanceError("the testbed needs root (namespaces, mounts, accounts): use sudo")
    missing = [
        package for program, package in _PROGRAMS.items() if not shutil.which(program, path=PATH)
    ]
    if missing:
        raise InstanceError(f"the testbed needs packages: apt-get install {' '.join(missing)}")
