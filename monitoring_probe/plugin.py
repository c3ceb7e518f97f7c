"""The one line a monitoring plugin prints (Monitoring Plugins development guidelines)."""

from collections.abc import Mapping, Sequence

from monitoring_probe.judge import Verdict, summary, worst

MAX_LINE = 8000
"""Servers cut at 16 kB; a line longer than this is no help to anybody."""

_PERFORMANCE = {
    "hg.nodes[idle]": "nodes_idle",
    "hg.nodes[down]": "nodes_down",
    "hg.nodes[drain]": "nodes_drain",
    "hg.cpus.alloc": "cpus_alloc",
    "hg.cpus.total": "cpus_total",
    "hg.jobs[running]": "jobs_running",
    "hg.jobs[pending]": "jobs_pending",
}


def line(verdicts: Sequence[Verdict], values: Mapping[str, object]) -> str:
    """`HEADGATE STATE - words | 'label'=value …`; without a `|` or a line break in the words."""
    words = " ".join(summary(verdicts).replace("|", "/").split())
    found = [f"'{label}'={values[key]}" for key, label in _PERFORMANCE.items() if key in values] + [
        f"'{key[3:].replace('[', '_').rstrip(']')}'={value}"
        for key, value in values.items()
        if key.startswith(("hg.gpu.total[", "hg.gpu.alloc[", "hg.gpu.free["))
    ]
    found += [
        f"'{key.removeprefix('hg.svc.latency[').rstrip(']')}'={value}s"
        for key, value in values.items()
        if key.startswith("hg.svc.latency[")
    ]
    text = f"HEADGATE {worst(verdicts).name} - {words[:MAX_LINE]}"
    return f"{text} | {' '.join(found)}"[: 2 * MAX_LINE] if found else text
