"""The one generator of batch scripts: claim the row, prepare the runtime, run the payload once."""

import hashlib
import shlex
from typing import Protocol

from gateway.jobs import JobSpec, Sealed, marker
from gateway.observation import ALREADY_STARTED, NO_ROOM

SCRIPT_VERSION = 1
PRIVATE = ".headgate"


class Runtime(Protocol):
    """How a payload is run: its lines of the batch script."""

    def prepare(self, spec: JobSpec) -> str:
        """Shell lines that make ready; on failure `fail KIND`, the cause in `.headgate/words`."""

    def launch(self, spec: JobSpec) -> str:
        """One shell command, run once per process, that becomes `.headgate/payload`."""


def seal(
    *,
    row: str,
    uid: int,
    spec: JobSpec,
    directory: str,
    runtime: Runtime,
    default_queue: str | None = None,
) -> Sealed:
    """Everything that will be executed for a job, from which its digest is taken."""
    return Sealed(
        row=row,
        uid=uid,
        script=_script(row, spec, directory, runtime),
        sbatch_args=_sbatch_arguments(row, spec, directory, default_queue),
        directory=directory,
        environment=_environment(spec),
    )


def _environment(spec: JobSpec) -> str:
    """Shell assignments: any value but NUL survives quoting, newlines and quotes included."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in sorted(spec.environment.items())
    )


def _sbatch_arguments(
    row: str, spec: JobSpec, directory: str, default_queue: str | None
) -> tuple[str, ...]:
    resources, attributes = spec.resources, spec.attributes
    arguments = [
        f"--job-name={marker(row)}",
        f"--chdir={directory}",
        f"--output={directory.replace('%', '%%')}/stdout",
        f"--error={directory.replace('%', '%%')}/stderr",
        "--export=ALL",
        "--no-requeue",
        f"--nodes={resources.node_count}",
        f"--ntasks={resources.processes}",
        f"--cpus-per-task={resources.cpu_cores_per_process}",
    ]
    gpus = resources.gpu_cores_per_process * resources.processes_per_node
    if gpus:
        arguments.append(f"--gres=gpu:{gpus}")
    if resources.memory is not None:
        arguments.append(f"--mem={-(-resources.memory // (1024 * 1024))}M")
    if attributes.duration is not None:
        hours, seconds = divmod(attributes.duration, 3600)
        arguments.append(f"--time={hours}:{seconds // 60:02d}:{seconds % 60:02d}")
    queue = attributes.queue_name or default_queue
    if queue is not None:
        arguments.append(f"--partition={queue}")
    if attributes.account is not None:
        arguments.append(f"--account={attributes.account}")
    if attributes.reservation_id is not None:
        arguments.append(f"--reservation={attributes.reservation_id}")
    return tuple(arguments)


def _script(row: str, spec: JobSpec, directory: str, runtime: Runtime) -> str:
    private = shlex.quote(f"{directory}/{PRIVATE}")
    return f"""#!/bin/sh
# headgate job {row}, script version {SCRIPT_VERSION}
# In braces, so that the shell has read all of it before it runs any: a controller that gives an id
# away twice makes slurmd write another job's script over this one.
{{
umask 077
export PATH="${{PATH:-/usr/local/bin:/usr/bin:/bin}}"
HOME=$(getent passwd "$(id -u)" | cut -d: -f6) USER=$(id -un)
export HOME USER LOGNAME="$USER"
cd {shlex.quote(directory)} || exit 1
export headgate={private}
# A controller that was killed can start one job twice: the second start finds the claim.
full() {{
  echo "headgate: the job's directory cannot be written." >&2
  exit {NO_ROOM}
}}
if ! (set -C; : > "$headgate/claim") 2> /dev/null; then
  [ -e "$headgate/claim" ] || full
  echo "headgate: this job has started already; it does not start again." >&2
  exit {ALREADY_STARTED}
fi
echo "$SLURM_JOB_ID $(hostname)" > "$headgate/claim" || full
fail() {{
  {{ echo "$1"; tail -c 3000 "$headgate/words"; }} > "$headgate/failure.partial"
  mv "$headgate/failure.partial" "$headgate/failure"
  [ "$1" = payload ] || cat "$headgate/words" >&2
  exit "${{2:-1}}"
}}
trap 'rm -f "$headgate/env"' EXIT
{_file("payload", _payload(spec, directory, private))}
{_file("launch", runtime.launch(spec))}
{runtime.prepare(spec)}
# A session of its own: the signal that ends a job must reach what a runtime starts, too.
{_launcher(spec)}/bin/sh "$headgate/launch" &
payload=$!
trap 'kill -TERM -- "-$payload" 2> /dev/null' TERM INT
wait "$payload"; status=$?
while kill -0 "$payload" 2> /dev/null; do wait "$payload"; status=$?; done
if [ $status != 0 ] && [ ! -s "$headgate/exit" ]; then
  {{ echo "The payload did not start (status $status)."; tail -c 2000 stderr; }} > "$headgate/words"
  fail payload "$status"
fi
[ "${{SLURM_NTASKS:-1}}" = 1 ] && [ -s "$headgate/exit" ] && status=$(cat "$headgate/exit")
exit "$status"
}}
"""


def _payload(spec: JobSpec, directory: str, private: str) -> str:
    """What runs inside the runtime: take the environment, run, write down how it ended."""
    command = " ".join(shlex.quote(word) for word in (spec.executable, *spec.arguments))
    return f"""#!/bin/sh
if [ -r {private}/env ]; then
  . {private}/env
  [ "${{SLURM_NTASKS:-1}}" = 1 ] && rm -f {private}/env
fi
cd {shlex.quote(directory)} || exit 1
{command}
status=$?
[ "${{SLURM_PROCID:-0}}" = 0 ] && echo $status > {private}/exit
exit $status
"""


def _file(name: str, content: str) -> str:
    """A here-document; no content can hold the digest of itself, so none can end it early."""
    end = f"headgate-{hashlib.sha256(content.encode()).hexdigest()}"
    return f"cat > \"$headgate/{name}\" << '{end}' || full\n{content}\n{end}"


def _launcher(spec: JobSpec) -> str:
    """One process runs right here; several are Slurm's to start."""
    alone = spec.resources.processes == 1
    return "setsid " if alone else "setsid srun --kill-on-bad-exit=1 "
