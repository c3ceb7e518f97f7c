"""GPU types as sites and NVML spell them."""

import pytest

from info_provider.gpus import GpuModel, describe


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tesla", GpuModel("tesla")),
        ("v100", GpuModel("v100", "NVIDIA")),
        ("Tesla-V100-SXM2-32GB", GpuModel("v100", "NVIDIA", 32000)),
        ("nvidia_a100-sxm4-40gb", GpuModel("a100", "NVIDIA", 40000)),
        ("nvidia_a100_80gb_pcie", GpuModel("a100", "NVIDIA", 80000)),
        ("nvidia_h100_80gb_hbm3", GpuModel("h100", "NVIDIA", 80000)),
        ("nvidia_h100_nvl", GpuModel("h100_nvl", "NVIDIA", 94000)),
        ("nvidia_gh200_480gb", GpuModel("gh200", "NVIDIA")),
        ("nvidia_geforce_rtx_2080_ti", GpuModel("rtx_2080_ti", "NVIDIA", 11000)),
        ("l40s", GpuModel("l40s", "NVIDIA", 48000)),
        ("amd_instinct_mi250x", GpuModel("mi250x", "AMD", 64000)),
        ("1g.5gb", GpuModel("1g.5gb", partition="1g.5gb")),
        ("nvidia_a100_3g.20gb", GpuModel("a100", "NVIDIA", None, "3g.20gb")),
        ("Weird Card", GpuModel("Weird Card")),
    ],
)
def test_spellings(kind: str, expected: GpuModel) -> None:
    """Case, dashes, vendor prefixes and size suffixes lead to one model; the unknown stays."""
    assert describe(kind) == expected
