"""The suite's story: from a token to a job's output, told with the commands people type."""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from testbed.narrator import Narrator, settled

IMAGE = "headgate/demo:latest"

_DEVICE_PAGE = re.compile(r"(http://127\.0\.0\.1:\d+/device)\?user_code=([A-Z]{4}-[A-Z]{4})")

Inside = Callable[[Sequence[str]], Awaitable[Sequence[str]]]
"""From a command of the site's administrator to the command that runs it from out here."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the story takes place. `ssh` is the login node; None: the embedded site has none."""

    narrator: Narrator
    gateway: str
    home: Path
    inside: Inside
    settings: Callable[[str], Path]
    ssh: str | None

    async def administrator(self, *argv: str, expect: str = "", only: str = "") -> str:
        """Run a command as the site's administrator does."""
        settings = ("--config", str(self.settings(argv[0])))
        inside = await self.inside((argv[0], *settings, *argv[1:]))
        return await self.narrator.run(inside, expect=expect, only=only, shown=argv, prompt="#")

    async def on_site(self, *argv: str, expect: str = "") -> str:
        """Run one of Slurm's commands on the site."""
        return await self.narrator.run(
            await self.inside(argv), expect=expect, shown=argv, prompt="#"
        )


async def tell(stage: Stage) -> None:
    """Everything, in order.

    Raises:
        StoryError: something did not happen as it is told here.
    """
    await _log_in(stage)
    await _get_an_account(stage)
    await _submit(stage)
    await _cancel(stage)
    if stage.ssh is not None:
        await _ssh(stage, stage.ssh)
    await _publish(stage)


async def _log_in(stage: Stage) -> None:
    narrator = stage.narrator
    narrator.title("Alice has a login at the identity provider, and nothing else")

    async def approve(line: str) -> None:
        if found := _DEVICE_PAGE.search(line):
            narrator.say("   (in a browser, alice signs in and approves)")
            form = {"user_code": found[2], "username": "alice"}
            async with (
                aiohttp.ClientSession() as session,
                session.post(found[1], data=form) as answer,
            ):
                answer.raise_for_status()

    await narrator.run(["headgate", "login", "--device", stage.gateway], heard=approve)
    await narrator.run(["headgate", "whoami"], expect="administrator")


async def _get_an_account(stage: Stage) -> None:
    stage.narrator.title("The administrator sees what a rule of the site approves, and has it done")
    await stage.administrator("headgate-accounts", "pull")
    await stage.administrator("headgate-accounts", "plan", expect="approved by the rule")
    await stage.administrator("headgate-accounts", "apply", expect="applied")
    await stage.narrator.run(["headgate", "whoami"], expect=r"account +\w+ \(uid \d+\)")


async def _submit(stage: Stage) -> None:
    narrator = stage.narrator
    narrator.title("She submits a container job over REST with nothing but her token")
    (stage.home / "job.json").write_text(_job(stage), encoding="utf-8")
    await narrator.run(["cat", "job.json"])
    post = f'curl -s -H "Authorization: Bearer $TOKEN" -d @job.json {stage.gateway}/v1/jobs'
    pretty = "python3 -m json.tool"
    token = {"TOKEN": _token(stage.home)}
    answer = await narrator.run(["sh", "-c", f"{post} | {pretty}"], env=token, expect='"new"')
    row = str(json.loads(answer)["id"])
    show = ["headgate", "job", "show", row]
    await settled(lambda: narrator.quietly(show), r"state +completed\s")
    get = f'curl -s -H "Authorization: Bearer $TOKEN" {stage.gateway}/v1/jobs/{row}/stdout'
    printed = r"uid=2\d{4}\(alice\).*\nGPU \d$" if stage.ssh is not None else r"GPU \d$"
    await narrator.run(["sh", "-c", get], env=token, expect=printed)
    narrator.title("The same from a terminal; the exit code is the payload's")
    submit = ["headgate", "job", "submit", *_image(stage), "--gpus", "1", "--time", "5m", "--wait"]
    await narrator.run([*submit, "--", "sh", "-c", "hostname; exit 7"], status=7)
    await narrator.run(["headgate", "job", "list"], expect="completed")
    if stage.ssh is not None:
        fields = "JobID%5,User,State,ExitCode,AllocTRES%60"
        sacct = ("sacct", "-a", "-X", "-o", fields)
        inside = await stage.inside(sacct)
        await settled(lambda: narrator.quietly(inside), "FAILED +7:0")
        await stage.on_site(*sacct, expect=r"alice +COMPLETED .*gres/gpu=1,")


def _job(stage: Stage) -> str:
    container = f'  "container": {{"image": "{IMAGE}"}},\n' if stage.ssh is not None else ""
    return f"""{{
  "executable": "/bin/sh",
  "arguments": ["-c", "id; echo GPU $CUDA_VISIBLE_DEVICES"],
{container}  "resources": {{"gpu_cores_per_process": 1}},
  "attributes": {{"duration": 300}}
}}
"""


def _image(stage: Stage) -> list[str]:
    """Where there are containers: on a real site."""
    return ["--image", IMAGE] if stage.ssh is not None else []


async def _cancel(stage: Stage) -> None:
    narrator = stage.narrator
    narrator.title("She cancels another one")
    submit = ["headgate", "job", "submit", "--gpus", "1", "--", "sleep", "600"]
    row = (await narrator.run(submit)).splitlines()[-1]
    columns = ("-o", "%.5i %.9P %.8u %.9T %.12b %j") if stage.ssh is not None else ()
    expect = f"hg-{row}" if columns else "RUNNING|PENDING"
    await stage.on_site("squeue", *columns, expect=expect)
    await narrator.run(["headgate", "job", "cancel", row])
    show = ["headgate", "job", "show", row]
    await settled(lambda: narrator.quietly(show), r"state +canceled\s")
    await narrator.run(show, expect="canceled")
    if stage.ssh is not None:
        sacct = ("sacct", "-a", "-X", "-o", "JobID%5,User,State%20", f"--name=hg-{row}")
        inside = await stage.inside(sacct)
        await settled(lambda: narrator.quietly(inside), "CANCELLED")
        await stage.on_site(*sacct, expect="CANCELLED")


async def _ssh(stage: Stage, host: str) -> None:
    narrator = stage.narrator
    narrator.title("Her token becomes an SSH certificate; a stock ssh logs in with it")
    # Whoever watches may have an ssh-agent: the story's keys have no place in it.
    alone = {"SSH_AUTH_SOCK": ""}
    ssh = ["headgate", "ssh"]
    batch = ["-o", "BatchMode=yes"]
    await narrator.run([*ssh, host, "id", "-un"], expect="^alice$", env=alone)
    (certificate,) = stage.home.glob(".local/state/headgate/ssh/*/id_ed25519-cert.pub")
    shown = str(certificate.relative_to(stage.home))
    await narrator.run(["ssh-keygen", "-L", "-f", shown], expect="hg:testbed:alice")
    for other in ("bob", "root"):
        command = [*ssh, f"{other}@{host}", *batch, "true"]
        await narrator.run(command, status=255, expect="Permission denied", env=alone)
    await narrator.run(["headgate", "ssh-config"], expect=f"Match host {host} exec", env=alone)


async def _publish(stage: Stage) -> None:
    narrator = stage.narrator
    narrator.title("What the site tells the world while a GPU is in use")
    hold = ["headgate", "job", "submit", "--gpus", "2", "--", "sh", "-c"]
    row = (await narrator.run([*hold, "while [ ! -e stop ]; do sleep 1; done"])).splitlines()[-1]
    show = ["headgate", "job", "show", row]
    await settled(lambda: narrator.quietly(show), r"state +active\s")
    slots = '"(MappingQueue|(Total|Used|Free)AcceleratorSlots)"'
    await stage.administrator("headgate-info", "run", expect='UsedAcceleratorSlots": 2', only=slots)
    gpus = r'"hg\.(gpu|svc|nodes)[^"]*": [^\[]'
    await stage.administrator("headgate-probe", "run", "--stdout", expect="hg.gpu", only=gpus)
    await narrator.run(["headgate", "job", "cancel", row])


def _token(home: Path) -> str:
    """The access token of the one saved login below a home directory."""
    (found,) = home.glob(".*/**/logins/*.json")
    return str(json.loads(found.read_text(encoding="utf-8"))["access_token"])
