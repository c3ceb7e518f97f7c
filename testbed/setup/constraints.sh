#!/usr/bin/env bash
# make constraints: pin what pyproject.toml asks for, with hashes, one file per extra in constraints/.
#
# Pins stay where they still fit; UPGRADE=1 takes the newest of everything. UV names a uv to use.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"
cd "$here/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${UV:-}" ]; then
  say "installing uv into a scratch environment: pip cannot pin for all platforms at once"
  "${HEADGATE_PYTHON:-/usr/bin/python3}" -m venv "$work/uv"
  "$work/uv/bin/python" -m pip --disable-pip-version-check install -q uv
  UV=$work/uv/bin/uv
fi

# Neither an index nor a link nor a path of the machine that made them may be in the files.
pin() {
  local name=$1
  shift
  "$UV" pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --group build "$@" pyproject.toml -o "$work/$name.txt" \
    >/dev/null
  { sed "1i# $why; made by \`make constraints\`" "$work/$name.txt"; } >"$work/$name.final"
}

say "pinning constraints/dev.txt, from which all the others take their versions"
if [ -z "${UPGRADE:-}" ] && [ -r constraints/dev.txt ]; then
  cp constraints/dev.txt "$work/dev.txt" # uv keeps what it finds in its output
fi
why='everything, with the tools of tests and checks'
pin dev --extra all --extra demo --group lint --group test
why='the shared package, the client and the headgate command'
pin base --constraint "$work/dev.txt"
why='headgate[demo], with what the testbed needs'
pin demo --constraint "$work/dev.txt" --extra demo
for extra in gateway tokens accounts info probe all; do
  why="headgate[$extra]"
  pin "$extra" --constraint "$work/dev.txt" --extra "$extra"
done
mkdir -p constraints
for file in "$work"/*.final; do
  name=$(basename "$file" .final)
  cp "$file" "constraints/$name.txt"
done

if grep -nE '://|^ *--(index|extra-index|find-links|trusted)| @ ' constraints/*.txt; then
  die "a constraints file names a place to download from"
fi
say "constraints/: $(grep -c '==' constraints/dev.txt) packages in dev.txt"
