#!/usr/bin/env bash
# make test-extras: each extra, installed alone into a fresh environment, imports its service.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
cd "$here/../.."
"$here/venv.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

try() { # NAME PACKAGE...
  local name=$1 venv=$work/$1
  shift
  .venv/bin/python -m venv "$venv"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes \
    -r "constraints/$name.txt"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation .
  # Elsewhere than here: what is imported must be what was installed.
  (cd "$work" && "$venv/bin/python" -I - "$@") <<'PYTHON'
"""Import every module of the packages named."""

import importlib.util
import pkgutil
import sys

modules = []
for package in sys.argv[1:]:
    modules.append(package)
    path = importlib.import_module(package).__path__
    modules += [found.name for found in pkgutil.walk_packages(path, f"{package}.")]
for module in modules:
    # One needs a built Slurm, one an extra of its own, the others run inside alembic.
    if module.endswith(".signer.pkcs11") and importlib.util.find_spec("pkcs11") is None:
        continue
    if not module.endswith(".slurm.pyslurm") and ".migrations." not in module:
        importlib.import_module(module)
print(f"{len(modules)} modules of {', '.join(sys.argv[1:])}")
PYTHON
  say "constraints/$name.txt is enough for: $*"
  rm -rf "$venv"
}

try base headgate
try gateway headgate gateway
try tokens headgate token_translator
try accounts headgate account_importer
try info headgate info_provider
try probe headgate monitoring_probe
try all headgate gateway token_translator account_importer info_provider monitoring_probe
