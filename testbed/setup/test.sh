#!/usr/bin/env bash
# make test, make test-long: every test, or with SITE=embedded those that need no real site.
#
#   test.sh [--long] [PYTEST OPTION]...
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
check_site
cd "$here/../.."

left_out=(long)
if [ "${1:-}" = --long ]; then
  left_out=()
  shift
fi

if [ "${SITE:-}" = embedded ]; then
  left_out+=(site)
  say "not run: the tests marked 'site', which need root and the distribution's packages"
else
  reason=$(why_no_real_site)
  if [ -n "$reason" ]; then
    say "the tests need the real site (Slurm, MariaDB, sshd, an image registry, Zabbix): $reason"
    say "these have parts that do:"
    grep -rlE 'mark\.site\b' tests --include='*.py' | sort | sed 's/^/    /' >&2 || true
    die "nothing was run; 'make test SITE=embedded' runs all the others"
  fi
  "$here/packages.sh" python slurm login containers zabbix authority units
fi
"$here/venv.sh"
if ! .venv/bin/python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("pyslurm"))'; then
  say "not run: the pyslurm reader; pyslurm is built for one Slurm release, which is not this one"
fi

expression=$(printf ' and not %s' "${left_out[@]}")
# Two processes, a file of tests to one of them: they wait for others more than they compute.
pytest=(.venv/bin/python -m pytest --numprocesses=2 --dist=loadfile "$@")
if [ "${#left_out[@]}" -gt 0 ]; then
  pytest+=(-m "${expression# and }")
fi
if [ "${SITE:-}" = embedded ]; then
  exec "${pytest[@]}"
fi
if [ "$(id -u)" -ne 0 ]; then
  pytest+=(-p no:cacheprovider)
fi
exec_as_root "${pytest[@]}"
