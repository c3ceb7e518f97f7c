#!/usr/bin/env bash
# make demo: the real site where this machine allows it, else the embedded one, and says which and why.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
check_site

site=embedded
if [ "${SITE:-}" != embedded ]; then
  reason=$(why_no_real_site)
  if [ -z "$reason" ]; then
    status=0
    "$here/packages.sh" python slurm login containers zabbix || status=$?
    case $status in
      0) site=real ;;
      3) reason="its packages cannot be added without changing what is installed" ;;
      *) exit "$status" ;;
    esac
  fi
  if [ "$site" = embedded ]; then
    [ "${SITE:-}" != real ] || die "the real site cannot run here: $reason"
    say "the real site (Slurm, sshd and the rest) cannot run here: $reason"
    say "so this is the embedded site: the same services on a simulated cluster"
  fi
fi
"$here/venv.sh"

cd "$here/../.."
if [ "$site" = real ]; then
  exec_as_root .venv/bin/python -m testbed.demo --site real
fi
exec .venv/bin/python -m testbed.demo --site embedded
