"""One component's process inside the site: started, probed, signalled, stopped."""

import asyncio
import contextlib
import os
import pwd
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import structlog

from testbed.components import Component, Ends, State, Status
from testbed.probes import until_ready

log = structlog.get_logger(__name__)

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LAST_WORDS = 1500


class ComponentError(Exception):
    """A component that cannot be started, or did not get ready; with its own last words."""


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


class Process:
    """A component and the process that is running for it, if any."""

    def __init__(self, component: Component, folder: Path) -> None:
        self._component = component
        self._folder = folder
        self._log = folder / "log" / f"{component.name}.log"
        self._state = State.STOPPED
        self._why = ""
        self._seconds = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    def show(self) -> Status:
        """How it fares now."""
        process = self._process
        return Status(
            name=self._component.name,
            state=self._state,
            pid=process.pid if process and process.returncode is None else 0,
            status=process.returncode if process else None,
            seconds=round(self._seconds, 3),
            why=self._why,
        )

    def start(self, before: Sequence["Process"]) -> None:
        """Begin to start it, once those before it are ready; `ready` waits for the outcome.

        Raises:
            ComponentError: it runs already.
        """
        if self._running():
            raise ComponentError(f"{self._component.name} runs already")
        self._state, self._why = State.WAITING, ""
        self._starting = asyncio.create_task(self._start(before))

    async def ready(self) -> None:
        """Wait until it is ready.

        Raises:
            ComponentError: it failed; with the reason.
        """
        if self._starting:
            await asyncio.shield(self._starting)
        if self._state not in {State.READY, State.DONE}:
            raise ComponentError(f"{self._component.name}: {self._state}: {self._why}")

    async def stop(self, grace: float) -> None:
        """TERM, after `grace` seconds KILL; returns when the process is gone."""
        if not self._process or self._process.returncode is not None:
            return
        self._state = State.STOPPED
        self._send(signal.SIGCONT)
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await self._process.wait()
        except TimeoutError:
            log.warning("killed", component=self._component.name, after=grace)
            self._send(signal.SIGKILL)
            await self._process.wait()

    async def signal(self, number: int) -> None:
        """Send a signal; after a KILL, return when the process is gone.

        Raises:
            ComponentError: it is not running.
        """
        if not self._process or self._process.returncode is not None:
            raise ComponentError(f"{self._component.name} is not running")
        self._send(number)
        if number == signal.SIGKILL and self._watching:
            await asyncio.shield(self._watching)

    def _running(self) -> bool:
        starting = self._starting is not None and not self._starting.done()
        return starting or (self._process is not None and self._process.returncode is None)

    def _send(self, number: int) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it was faster
            if self._component.whole_group:
                os.killpg(self._process.pid, number)
            else:
                os.kill(self._process.pid, number)

    async def _start(self, before: Sequence["Process"]) -> None:
        """Never raises: the outcome is the state, and why."""
        try:
            for process in before:
                await process.ready()
            began = time.monotonic()
            await self._spawn()
            await self._get_ready()
            self._seconds = time.monotonic() - began
            log.info("ready", component=self._component.name, seconds=round(self._seconds, 3))
        except (ComponentError, OSError, KeyError) as error:
            self._state, self._why = State.FAILED, str(error)
            log.exception("failed", component=self._component.name)

    async def _spawn(self) -> None:
        component = self._component
        account = pwd.getpwnam(component.user) if component.user else pwd.getpwuid(os.geteuid())
        argv = component.argv
        if component.private_tmp:
            with_tmp = str(self._folder / "libexec" / "with-private-tmp")
            argv = ("unshare", "--mount", with_tmp, component.private_tmp, *argv)
        environment = {
            "PATH": PATH,
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LANG": "C.UTF-8",
        }
        if component.runtime_directory:
            runtime = Path("/run") / component.runtime_directory
            runtime.mkdir(exist_ok=True)
            runtime.chmod(0o755)  # whatever our umask is: munge's clients have to get in
            os.chown(runtime, account.pw_uid, account.pw_gid)
        identity: _Identity = {}
        if component.user:
            groups = os.getgrouplist(component.user, account.pw_gid)
            identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
        self._state = State.STARTING
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**environment, **component.environment},
                cwd="/",
                **identity,
                umask=0o022,
                start_new_session=True,
            )
        self._watching = asyncio.create_task(self._watch(self._process))

    async def _get_ready(self) -> None:
        process = self._process
        if process is None:
            raise ComponentError("never started")
        ended = asyncio.create_task(process.wait())
        asking = asyncio.create_task(until_ready(self._component.ready))
        try:
            seconds = self._component.deadline
            await asyncio.wait({ended, asking}, timeout=seconds, return_when="FIRST_COMPLETED")
            if ended.done():
                if ended.result() == 0 and isinstance(self._component.ready, Ends):
                    self._state = State.DONE
                    return
                raise ComponentError(f"ended with status {ended.result()}: {self._last_words()}")
            if not asking.done():
                raise ComponentError(f"not ready within {seconds:g} s: {self._last_words()}")
            self._state = State.READY
        finally:
            ended.cancel()
            asking.cancel()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Note the end of a process that was ready; nothing is started again by itself."""
        status = await process.wait()
        if self._state is State.READY and process is self._process:
            self._state, self._why = State.ENDED, f"ended with status {status}"
            log.info("ended", component=self._component.name, status=status)

    def _last_words(self) -> str:
        return self._log.read_bytes()[-LAST_WORDS:].decode(errors="replace").strip()
