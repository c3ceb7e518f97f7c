"""udocker: a container without a daemon and without root, in the user's own storage."""

import hashlib
import shlex

from gateway.jobs import JobSpec
from gateway.runner.plain import PlainRuntime
from headgate.settings import Section

_PASSED = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_PROCID",
)
"""What Slurm says and a payload may want: udocker passes nothing of the host's environment on."""


class UdockerSettings(Section, frozen=True):
    """Where udocker is on compute nodes. `environment` is set for every call of it."""

    program: str = "udocker"
    registry: str = ""
    environment: dict[str, str] = {}  # noqa: RUF012 - msgspec copies a mutable default


class UdockerRuntime:
    """Runs payloads that name an image with udocker, others as they are.

    udocker has no locks: images and containers are made under a flock of ours in the user's
    storage, and a container gets its name only when it is complete. One container serves all
    jobs of a user with the same image (P1 mode leaves it as it is but for what they write).
    """

    def __init__(self, settings: UdockerSettings) -> None:
        self._settings = settings
        self._plain = PlainRuntime()

    def prepare(self, spec: JobSpec) -> str:
        """Pull the image and create its container, unless an earlier job has."""
        if spec.container is None:
            return self._plain.prepare(spec)
        image = spec.container.image
        registry = f"--registry={self._settings.registry}" if self._settings.registry else ""
        exports = "".join(
            f"export {name}={shlex.quote(value)}\n"
            for name, value in sorted(self._settings.environment.items())
        )
        return f"""{exports}export UDOCKER_LOGLEVEL=2 UDOCKER_TMP="$headgate"
export udocker={shlex.quote(self._settings.program)} container={_container(image)}
storage="${{UDOCKER_DIR:-$HOME/.udocker}}"
mkdir -p "$storage/containers"
exec 9> "$storage/headgate.lock"
flock 9
if [ ! -e "$storage/containers/$container" ]; then
  if ! "$udocker" pull {shlex.join(filter(None, [registry, image]))} > "$headgate/words" 2>&1 9>&-
  then fail image; fi
  if ! made=$("$udocker" create {shlex.quote(image)} 2> "$headgate/words" 9>&-); then fail image; fi
  made=$(printf '%s\\n' "$made" | tail -n 1)
  if ! "$udocker" name "$made" "$container" > "$headgate/words" 2>&1 9>&-; then fail image; fi
fi
exec 9>&-"""

    def launch(self, spec: JobSpec) -> str:
        """`udocker run` with the job's directory in its place and Slurm's words passed on."""
        if spec.container is None:
            return self._plain.launch(spec)
        passed = " ".join(f'--env="{name}=${{{name}-}}"' for name in _PASSED)
        return (
            'exec "$udocker" run --nobanner --pull=never --user="$USER" --hostauth --bindhome '
            f'--volume="$PWD" --workdir="$PWD" --entrypoint= {passed} '
            '"$container" /bin/sh "$headgate/payload"'
        )


def _container(image: str) -> str:
    """A name for the container of an image: udocker's own rules allow little."""
    return "hg-" + hashlib.sha256(image.encode()).hexdigest()[:24]
