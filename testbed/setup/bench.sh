#!/usr/bin/env bash
# make bench: the benchmarks with their floors, on the real site.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
cd "$here/../.."

[ -e bench/__main__.py ] || die "there are no benchmarks yet; bench/ comes with the first"
reason=$(why_no_real_site)
[ -z "$reason" ] || die "the benchmarks need the real site: $reason"
"$here/packages.sh" python slurm login containers
"$here/venv.sh"
exec_as_root .venv/bin/python -m bench "$@"
