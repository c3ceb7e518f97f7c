"""udocker: a container without a daemon and without root, in the user's own storage."""

import hashlib
import shlex

from gateway.images import STATUS
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


DOCKER_HUB = "https://registry-1.docker.io"
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.docker.distribution.manifest.v2+json"
)


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
  then
    # udocker says the same of an image that does not exist and of a registry that is broken.
    answer=$(curl -sL --max-time 20 --output /dev/null --write-out '%{{http_code}}' \
      --header {shlex.quote(f"Accept: {_MANIFESTS}")} {self._manifest(image)} 2> /dev/null 9>&-)
    [ -z "$answer" ] || echo "{STATUS}$answer" >> "$headgate/words"
    fail image
  fi
  if ! made=$("$udocker" create {shlex.quote(image)} 2> "$headgate/words" 9>&-); then fail image; fi
  made=$(printf '%s\\n' "$made" | tail -n 1)
  if ! "$udocker" name "$made" "$container" > "$headgate/words" 2>&1 9>&-; then fail image; fi
fi
exec 9>&-"""

    def _manifest(self, image: str) -> str:
        """Where the registry has the image (OCI distribution specification, pulling manifests)."""
        first, _, rest = image.partition("/")
        named = bool(rest) and ("." in first or ":" in first or first == "localhost")
        registry = f"https://{first}" if named else self._settings.registry or DOCKER_HUB
        name, tag = _tagged(rest if named else image)
        if registry == DOCKER_HUB and "/" not in name:
            name = f"library/{name}"
        return shlex.quote(f"{registry.rstrip('/')}/v2/{name}/manifests/{tag}")

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


def _tagged(image: str) -> tuple[str, str]:
    """An image's name and its tag or digest."""
    name, _, digest = image.partition("@")
    if digest:
        return name, digest
    name, _, tag = image.partition(":")
    return name, tag or "latest"


def _container(image: str) -> str:
    """A name for the container of an image: udocker's own rules allow little."""
    return "hg-" + hashlib.sha256(image.encode()).hexdigest()[:24]
