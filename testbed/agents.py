"""The settings of what runs from a timer: the information provider and the probe."""

from typing import Any

from testbed.suite import INFO, PROBE, Suite, write_settings


def info(suite: Suite) -> None:
    """The information provider."""
    write_settings(
        suite,
        INFO,
        {
            "domain": {"id": "TESTBED"},
            "location": {"name": "Testbed"},
            "service": {"name": "testbed.example.org"},
            "endpoint": [
                {"url": suite.addresses.gateway, "health": f"{suite.addresses.gateway}/readyz"}
            ],
            "slurm": {**_cluster_read(suite), "timeout": 10.0},
        },
    )


def probe(suite: Suite) -> None:
    """The probe."""
    addresses = suite.addresses
    services = {"gateway": addresses.gateway, "tokens": addresses.tokens}
    write_settings(
        suite,
        PROBE,
        {
            "slurm": _cluster_read(suite),
            "service": [{"name": name, "url": url} for name, url in services.items()],
            "spool": {"path": str(suite.files.path("var", PROBE, "spool"))},
        },
    )


def _cluster_read(suite: Suite) -> dict[str, Any]:
    """How the agents read the gateway's cluster."""
    if "memory" in suite.cluster:
        return {"memory": dict(suite.cluster["memory"])}
    return {"conf": suite.cluster["slurm_conf"]}
