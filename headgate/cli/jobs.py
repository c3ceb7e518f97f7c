"""The verbs of `headgate job`: submit, list, show, logs, cancel."""

from typing import Any

import click

from headgate.cli import exits
from headgate.cli.amounts import Memory, WallTime, variables
from headgate.cli.follow import Follower
from headgate.cli.invocation import Invocation, invocation
from headgate.cli.job_ids import job_id
from headgate.cli.screen import SHORT_ID
from headgate.client import Attributes, Client, Container, Job, JobSpec, JobState, Resources

LIST_DEFAULT = 25

SUBMIT_HELP = """Run a command as a batch job.

\b
  headgate job submit --image IMAGE --gpus 1 --time 10m -- python train.py

What follows `--` is the command and its arguments; no shell expands it. The id of the job goes to
standard output.

With --wait, the job's output follows, and the command ends with the payload's exit code;
128+N when signal N ended it, 124 when the time limit did, 125 when the job was refused or lost
from sight, 126 when it failed before or beside its payload, 130 when it was canceled.

With --json: one Job object, as GET /v1/jobs/{id} has it; with --wait the ended one.
"""


@click.group()
def job() -> None:
    """Submit, watch and cancel batch jobs."""


@job.command(help=SUBMIT_HELP, context_settings={"allow_interspersed_args": False})
@click.option("--image", metavar="IMAGE", help="Container image to run in.")
@click.option("--gpus", type=click.IntRange(min=0), metavar="N", help="GPUs on each node.")
@click.option("--cpus", type=click.IntRange(min=1), metavar="N", help="CPU cores on each node.")
@click.option("--memory", type=Memory(), help="Memory on each node: 512M, 4G.")
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Nodes to have.")
@click.option("--time", "duration", type=WallTime(), help="Longest run: 90s, 10m, 1h30m.")
@click.option("--queue", metavar="NAME", help="Queue (Slurm partition).")
@click.option("--account", metavar="NAME", help="Slurm account to charge.")
@click.option("--reservation", metavar="NAME", help="Reservation to run in.")
@click.option("--name", metavar="TEXT", help="Your own name for the job.")
@click.option("--cluster", metavar="NAME", help="Cluster, where the site has several.")
@click.option("--env", multiple=True, metavar="K=V", help="Environment variable; repeatable.")
@click.option("--wait", is_flag=True, help="Follow the job to its end.")
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]..."
)
@invocation()
def submit(run: Invocation, *, command: tuple[str, ...], wait: bool, **options: Any) -> None:  # noqa: ANN401, D103 - click's options; help is SUBMIT_HELP
    run.refused_status = exits.NOT_FOLLOWED if wait else exits.FAILED
    spec = specification(command, {**options, "env": variables(options["env"], run.places.environ)})
    ended = run.run(_submit(run, spec, wait=wait))
    if wait:
        raise click.exceptions.Exit(exits.of_job(ended))


def specification(command: tuple[str, ...], options: dict[str, Any]) -> JobSpec:
    """The job that a command line describes; what was not given stays the gateway's to choose."""
    nodes = options["nodes"]
    resources = Resources(
        node_count=nodes,
        process_count=nodes,  # one process on each node, so that amounts are per node
        cpu_cores_per_process=options["cpus"],
        gpu_cores_per_process=options["gpus"],
        memory=options["memory"],
    )
    attributes = Attributes(
        duration=options["duration"],
        queue_name=options["queue"],
        account=options["account"],
        reservation_id=options["reservation"],
    )
    return JobSpec(
        executable=command[0],
        arguments=command[1:],
        name=options["name"],
        environment=options["env"],
        container=Container(image=options["image"]) if options["image"] else None,
        resources=None if resources == Resources() else resources,
        attributes=None if attributes == Attributes() else attributes,
        cluster=options["cluster"],
    )


async def _submit(run: Invocation, spec: JobSpec, *, wait: bool) -> Job:
    async with run.client() as client:
        submitted = await client.submit(spec)
        if not wait:
            _tell(run, submitted)
            return submitted
        if not run.as_json:
            run.screen.note(f"Job {submitted.id} (Ctrl-C leaves it running)")
        return await _follow(run, client, submitted.id)


def _tell(run: Invocation, submitted: Job) -> None:
    if run.as_json:
        run.screen.json(submitted)
        return
    run.screen.line(submitted.id)
    if run.screen.err.is_terminal:
        short = submitted.id[:SHORT_ID]
        run.screen.note((f"Follow it: headgate job logs --follow {short}", "bright_black"))


async def _follow(run: Invocation, client: Client, full_id: str) -> Job:
    follower = Follower(client, full_id, screen=run.screen, clock=run.clock, quiet=run.as_json)
    try:
        ended = await follower.to_the_end()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group
    if run.as_json:
        run.screen.json(ended)
    return ended


@job.command("list")
@click.option("--state", type=click.Choice([s.value for s in JobState if s.value != "unknown"]))
@click.option(
    "--limit", type=click.IntRange(min=1), default=LIST_DEFAULT, show_default=True, metavar="N"
)
@invocation()
def list_jobs(run: Invocation, *, state: str | None, limit: int) -> None:
    """List your jobs, newest first.

    With --json: {"jobs": [Job, …]}.
    """
    jobs = run.run(_list(run, JobState(state) if state else None, limit))
    if run.as_json:
        run.screen.json({"jobs": jobs})
    else:
        run.screen.jobs(jobs)


async def _list(run: Invocation, state: JobState | None, limit: int) -> list[Job]:
    jobs: list[Job] = []
    async with run.client() as client:
        async for found in client.jobs(state=state, page_size=min(limit, 100)):
            jobs.append(found)
            if len(jobs) >= limit:
                break
    return jobs


@job.command()
@click.argument("id")
@invocation()
def show(run: Invocation, *, id: str) -> None:  # noqa: A002 - the name of the argument in the usage
    """Show one job. ID may be shortened to its beginning.

    With --json: one Job object, as GET /v1/jobs/{id} has it.
    """
    found = run.run(_show(run, id))
    if run.as_json:
        run.screen.json(found)
    else:
        run.screen.job(found)


async def _show(run: Invocation, wish: str) -> Job:
    async with run.client() as client:
        return await client.job(await job_id(client, wish))


@job.command()
@click.argument("id")
@click.option("--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--stderr", is_flag=True, help="What it wrote to standard error instead.")
@invocation()
def logs(run: Invocation, *, id: str, follow: bool, stderr: bool) -> None:  # noqa: A002 - the name of the argument in the usage
    """Print what a job has written to standard output.

    With --json: {"job": id, "stdout": text}; bytes that are not UTF-8 are replaced.
    """
    run.run(_logs(run, id, follow=follow, stderr=stderr))


async def _logs(run: Invocation, wish: str, *, follow: bool, stderr: bool) -> None:
    async with run.client() as client:
        full_id = await job_id(client, wish)
        if follow and not run.as_json and not stderr:
            await _follow(run, client, full_id)
            return
        if follow:
            await client.wait(full_id)
        if run.as_json:
            whole = client.stderr if stderr else client.stdout
            text = (await whole(full_id)).decode(errors="replace")
            run.screen.json({"job": full_id, "stderr" if stderr else "stdout": text})
            return
        empty = True
        async for chunk in (client.stderr_chunks if stderr else client.stdout_chunks)(full_id):
            run.screen.output(chunk)
            empty = False
        if empty:
            yet = "" if (await client.job(full_id)).state.final else " yet"
            run.screen.note(f"The job has printed nothing{yet}.")


@job.command()
@click.argument("id")
@invocation()
def cancel(run: Invocation, *, id: str) -> None:  # noqa: A002 - the name of the argument in the usage
    """Cancel a job.

    With --json: one Job object; its state may still be the old one until the cluster has acted.
    """
    canceled = run.run(_cancel(run, id))
    if run.as_json:
        run.screen.json(canceled)
        return
    ended = canceled.state.final
    words = f"is {canceled.state.value}" if ended else "is being canceled"
    run.screen.note(f"{canceled.id} {words}.")


async def _cancel(run: Invocation, wish: str) -> Job:
    async with run.client() as client:
        return await client.cancel(await job_id(client, wish))
