#!/usr/bin/env bash
# Make .venv, the environment of the tests and checks, from constraints/dev.txt; nothing if it is there.
#
# HEADGATE_PYTHON names another interpreter than /usr/bin/python3; it must be 3.11 or newer.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
cd "$here/../.."

readonly VENV=.venv
readonly REQUIREMENTS=constraints/dev.txt

interpreter() {
  local candidate
  if [ -n "${HEADGATE_PYTHON:-}" ]; then
    new_enough "$HEADGATE_PYTHON" || die "HEADGATE_PYTHON=$HEADGATE_PYTHON is not a Python 3.11 or newer"
    echo "$HEADGATE_PYTHON"
    return
  fi
  for candidate in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
    if new_enough "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  die "no Python 3.11 or newer is here: install one (python3-venv), or HEADGATE_PYTHON=/path/to/it"
}

# The distribution's Python comes without what makes environments; others have it.
provide_python() {
  local python
  if command -v apt-get >/dev/null && [ -z "${HEADGATE_PYTHON:-}" ]; then
    if ! [ -x /usr/bin/python3 ] || ! /usr/bin/python3 -c 'import ensurepip' 2>/dev/null; then
      if may_become_root ask; then
        "$here/packages.sh" python
      fi
    fi
  fi
  python=$(interpreter)
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python cannot make environments: its package python3-venv is missing"
  echo "$python"
}

digest() { sha256sum "$@" | sha256sum | cut -c -16; }

pip() { "$VENV/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

install_dependencies() {
  local count
  count=$(grep -c '^[a-z].*==' "$REQUIREMENTS")
  say "making $VENV for tests and checks: $count Python packages, as $REQUIREMENTS pins them"
  rm -rf "$VENV"
  "$python" -m venv "$VENV"
  pip install --progress-bar off --require-hashes -r "$REQUIREMENTS" |
    awk -v count="$count" '/^Collecting/ && ++n % 20 == 0 {
      printf "set-up:   %d of %d Python packages\n", n, count
      fflush()
    }' >&2
  echo "$dependencies" >"$VENV/dependencies-stamp"
}

python=$(provide_python)
# An environment knows its own place and its interpreter: with either changed it is another one.
dependencies="$PWD $("$python" -VV) $(digest "$REQUIREMENTS")"
project=$(digest pyproject.toml)

stale() { [ "$(cat "$VENV/$1-stamp" 2>/dev/null)" != "$2" ]; }

if stale dependencies "$dependencies" || stale project "$project"; then
  exec 9<pyproject.toml
  flock -n 9 || { say "another set-up is making $VENV; waiting for it" && flock 9; }
  if stale dependencies "$dependencies"; then
    install_dependencies
  fi
  if stale project "$project"; then
    pip install -q --no-deps --no-build-isolation -e .
    echo "$project" >"$VENV/project-stamp"
  fi
fi
