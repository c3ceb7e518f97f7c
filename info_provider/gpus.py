"""Which card a GPU type of Slurm's means: one table for the spellings sites and NVML use."""

import re
from dataclasses import dataclass

MEGABYTES = 1000


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU as GLUE describes it: vendor if known, model, memory per card in MB (10^6 bytes).

    `partition` is the MIG profile (`1g.5gb`) when the type means an instance and not a card.
    """

    model: str
    vendor: str = ""
    memory_mb: int | None = None
    partition: str = ""


_NVIDIA = "NVIDIA"
_AMD = "AMD"
_INTEL = "Intel"

# Model -> vendor and the sizes in GB it is sold with. More than one: the name's suffix decides.
_MODELS: dict[str, tuple[str, tuple[int, ...]]] = {
    "k80": (_NVIDIA, (12,)),
    "p100": (_NVIDIA, (12, 16)),
    "v100": (_NVIDIA, (16, 32)),
    "v100s": (_NVIDIA, (32,)),
    "t4": (_NVIDIA, (16,)),
    "rtx_2080_ti": (_NVIDIA, (11,)),
    "rtx_3090": (_NVIDIA, (24,)),
    "rtx_4090": (_NVIDIA, (24,)),
    "rtx_6000": (_NVIDIA, (24,)),
    "rtx_8000": (_NVIDIA, (48,)),
    "a10": (_NVIDIA, (24,)),
    "a30": (_NVIDIA, (24,)),
    "a40": (_NVIDIA, (48,)),
    "a100": (_NVIDIA, (40, 80)),
    "l4": (_NVIDIA, (24,)),
    "l40": (_NVIDIA, (48,)),
    "l40s": (_NVIDIA, (48,)),
    "a6000": (_NVIDIA, (48,)),
    "h100": (_NVIDIA, (80,)),
    "h100_nvl": (_NVIDIA, (94,)),
    "gh200": (_NVIDIA, (96, 144)),
    "h200": (_NVIDIA, (141,)),
    "b200": (_NVIDIA, (180,)),
    "mi50": (_AMD, (16, 32)),
    "mi100": (_AMD, (32,)),
    "mi210": (_AMD, (64,)),
    "mi250": (_AMD, (64,)),
    "mi250x": (_AMD, (64,)),
    "mi300a": (_AMD, (128,)),
    "mi300x": (_AMD, (192,)),
    "max_1100": (_INTEL, (48,)),
    "max_1550": (_INTEL, (128,)),
}
_PREFIXES = (
    "nvidia_",
    "tesla_",
    "geforce_",
    "quadro_",
    "amd_",
    "instinct_",
    "intel_",
    "data_center_gpu_",
)
_MIG = re.compile(r"(?:^|_)(\d+g\.\d+gb)(?:_|$)")
_SIZE = re.compile(r"(?:^|_)(\d+)gb(?:_|$)")


def describe(kind: str) -> GpuModel:
    """The card behind a GRES type; an unknown type is its own model, without vendor or memory."""
    name = kind.lower().replace("-", "_").replace(" ", "_")
    mig = _MIG.search(name)
    if mig:
        name = name[: mig.start()].strip("_")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    model = _known(name)
    partition = mig.group(1) if mig else ""
    if model is None:
        return GpuModel(model=kind, partition=partition)
    vendor, sizes = _MODELS[model]
    memory = None if mig else _memory(name, sizes)
    return GpuModel(model, vendor, memory, partition)


def _known(name: str) -> str | None:
    """The longest table name that `name` is, or begins with as whole words."""
    words = name.split("_")
    for length in range(len(words), 0, -1):
        candidate = "_".join(words[:length])
        if candidate in _MODELS:
            return candidate
    return None


def _memory(name: str, sizes: tuple[int, ...]) -> int | None:
    if len(sizes) == 1:
        return sizes[0] * MEGABYTES
    named = _SIZE.search(name)
    # A size the card is not sold with is something else: gh200_480gb is the host's memory.
    if named and int(named.group(1)) in sizes:
        return int(named.group(1)) * MEGABYTES
    return None
