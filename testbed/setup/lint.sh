#!/usr/bin/env bash
# make lint: style, types, the boundaries between packages, and the shell scripts. All run, then it fails.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
cd "$here/../.."

if ! command -v shellcheck >/dev/null && command -v apt-get >/dev/null && may_become_root; then
  "$here/packages.sh" lint
fi
"$here/venv.sh"

failed=()
check() {
  say "$*"
  PATH="$PWD/.venv/bin:$PATH" "$@" || failed+=("$*")
}

check ruff check
check ruff format --check
check mypy
check lint-imports --no-logo
if command -v shellcheck >/dev/null; then
  mapfile -t scripts < <(find . -name '.?*' -prune -type d ! -name .ci -o -type f -print0 |
    xargs -0 awk 'FNR == 1 && /^#!.*[\/ ](ba|da)?sh( |$)/ { print FILENAME } { nextfile }' | sort)
  check shellcheck --external-sources --source-path=SCRIPTDIR "${scripts[@]}"
else
  say "not run: shellcheck, which is not installed here"
fi
[ "${#failed[@]}" -eq 0 ] || die "failed:$(printf ' [%s]' "${failed[@]}")"
