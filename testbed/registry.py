"""The site's image registry, and one small image in it made from the distribution's busybox."""

import hashlib
import shutil
from pathlib import Path

from headgate.command import run
from testbed import cache
from testbed.components import Answers, Component, Ends
from testbed.folders import Folder
from testbed.instances import Ports

IMAGE = "headgate/demo:latest"
_BUSYBOX = Path("/bin/busybox")
_STEP_SECONDS = 60.0
_RECIPE = "1"
"""Change it when the recipe below changes: images are kept by it."""

_FOLDERS = ("bin", "dev", "etc", "home", "proc", "root", "sys", "tmp", "usr/bin", "var/tmp")


def users() -> tuple[str, ...]:
    """The system accounts that this part needs."""
    return ("docker-registry",)


async def prepare(folder: Folder, ports: Ports) -> tuple[Component, ...]:
    """Write the registry's configuration; the image is pushed into it at the site's start.

    Raises:
        CommandError: the image could not be made.
    """
    image = await _image()
    port = ports.take("registry")
    folder.make("registry/data", owner="docker-registry", mode=0o700)
    folder.write("registry/config.yml", _config(folder, port))
    folder.write("libexec/proot-nok", _PROOT, mode=0o755)
    registry = Component(
        name="registry",
        argv=("docker-registry", "serve", str(folder.path("registry", "config.yml"))),
        user="docker-registry",
        ready=Answers(port, "/v2/"),
    )
    push = Component(
        name="registry-image",
        argv=(
            *("skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"),
            f"oci:{image}:latest",
            f"docker://127.0.0.1:{port}/{IMAGE}",
        ),
        after=("registry",),
        ready=Ends(),
    )
    return (registry, push)


def udocker_environment(folder: Folder) -> dict[str, str]:
    """What udocker needs to use the distribution's proot and to fetch nothing from elsewhere."""
    return {
        "UDOCKER_TARBALL": "",
        "UDOCKER_USE_PROOT_EXECUTABLE": str(folder.path("libexec", "proot-nok")),
    }


async def _image() -> Path:
    """The image as an OCI layout, made once per busybox and recipe."""
    key = hashlib.sha256(_BUSYBOX.read_bytes() + _RECIPE.encode()).hexdigest()[:12]
    layout = cache.place(f"image-{key}")
    if layout.exists():
        return layout
    async with cache.making(layout) as scratch:
        made, bundle = scratch / "made", scratch / "bundle"
        tagged = f"{made}:latest"
        await _umoci("init", "--layout", str(made))
        await _umoci("new", "--image", tagged)
        await _umoci("unpack", "--image", tagged, str(bundle))
        await _rootfs(bundle / "rootfs")
        await _umoci("repack", "--image", tagged, str(bundle))
        await _umoci(
            *("config", "--image", tagged, "--config.cmd", "/bin/sh"),
            *("--config.env", "PATH=/usr/bin:/bin", "--config.workingdir", "/"),
        )
    return layout


async def _rootfs(rootfs: Path) -> None:
    for name in _FOLDERS:
        (rootfs / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (rootfs / name).chmod(0o1777)
    shutil.copy(_BUSYBOX, rootfs / "bin" / "busybox")
    applets = await run((str(_BUSYBOX), "--list"), timeout=_STEP_SECONDS)
    for applet in applets.checked().stdout.decode().split():
        if applet != "busybox":
            (rootfs / "bin" / applet).symlink_to("busybox")
    (rootfs / "usr/bin/env").symlink_to("/bin/busybox")
    (rootfs / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n", encoding="ascii")
    (rootfs / "etc/group").write_text("root:x:0:\n", encoding="ascii")


async def _umoci(*arguments: str) -> None:
    (await run(("umoci", *arguments), timeout=_STEP_SECONDS)).checked()


def _config(folder: Folder, port: int) -> str:
    return f"""\
version: 0.1
log:
  accesslog:
    disabled: true
  level: warn
storage:
  filesystem:
    rootdirectory: {folder.path("registry", "data")}
  delete:
    enabled: true
http:
  addr: 127.0.0.1:{port}
"""


_PROOT = """\
#!/bin/sh
# proot 5.1.0 fails on the kernel release (-k RELEASE) that udocker passes: leave the first one out.
state=look
for argument do
    shift
    case $state:$argument in
        look:-k) state=skip ;;
        skip:*) state=found ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec /usr/bin/proot "$@"
"""
