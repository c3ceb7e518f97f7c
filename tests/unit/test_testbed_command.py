"""`python -m testbed` where not everything is installed."""

import subprocess
import sys

import pytest

WITHOUT = """
import runpy, sys
sys.modules[sys.argv.pop(1)] = None  # as if it were not installed
sys.argv[1:] = ["--help"]
runpy.run_module("testbed", run_name="__main__")
"""


@pytest.mark.parametrize("library", ["tomli_w", "msgspec", "headgate"])
def test_testbed_names_the_library_that_is_missing(library: str) -> None:
    """One sentence says which, and which environment has it."""
    argv = [sys.executable, "-c", WITHOUT, library]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"testbed: {library} is not installed")
    assert "constraints/dev.txt" in line


def test_testbed_does_not_hide_a_fault_of_its_own() -> None:
    """A module of ours that is not there is no library: that is a fault, and shown as one."""
    argv = [sys.executable, "-c", WITHOUT, "testbed.launch"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
