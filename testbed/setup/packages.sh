#!/usr/bin/env bash
# Add distribution packages and change nothing else on the machine.
#
#   packages.sh PART...     each part is a list in packages/: one package a line, and what it is for
#
# Nothing that is installed is upgraded or removed; services of added packages are neither started
# nor left enabled. Killed in the middle, the next start finishes what was begun.
# Exit status: 0 all there, 3 not without an upgrade or a removal, 1 anything else.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=machine.sh
. "$here/machine.sh"

readonly POLICY=/usr/sbin/policy-rc.d
readonly POLICY_MARK='# headgate set-up: no service starts while it adds packages'
readonly JOURNAL=/var/lib/headgate-setup/unfinished # the packages that a run is about to add
readonly LOG=/var/log/headgate-setup.log
readonly LOCK=/run/headgate-setup.lock

export DEBIAN_FRONTEND=noninteractive LC_ALL=C NEEDRESTART_SUSPEND=1
apt=(apt-get -q --no-install-recommends --no-upgrade --no-remove -o DPkg::Lock::Timeout=600
  -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold)

# --- what is wanted, and what is there ---------------------------------------------------------

wanted() {
  local part
  for part in "$@"; do
    [ -r "$here/packages/$part.list" ] || die "there is no list of packages named '$part'"
    sed 's/#.*//' "$here/packages/$part.list" | awk 'NF { print $1 }'
  done
}

installed() {
  # dpkg-query fails for a name it never heard of: that one is simply not installed.
  dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
    awk '$2 == "installed" { print $1 }' || true
}

missing() {
  local names
  mapfile -t names < <(wanted "$@")
  comm -23 <(printf '%s\n' "${names[@]}" | sort -u) <(installed "${names[@]}" | sort -u)
}

interrupted() {
  [ -e "$JOURNAL" ] || { [ -e "$POLICY" ] && grep -qsF "$POLICY_MARK" "$POLICY"; }
}

explain() {
  local part
  for part in "$@"; do
    if [ -n "$(missing "$part")" ]; then
      say "  $(sed -n '1s/^# //p' "$here/packages/$part.list"): $(missing "$part" | paste -sd' ')"
    fi
  done
}

# --- no service starts, and none is left enabled -----------------------------------------------

deny_service_starts() {
  [ ! -e "$POLICY" ] || return 0 # the machine's own word stands
  local draft
  draft=$(mktemp "$POLICY.headgate-XXXXXX")
  printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" >"$draft"
  chmod 0755 "$draft"
  ln "$draft" "$POLICY" 2>/dev/null || true # whoever was first wins
  rm -f "$draft"
}

allow_service_starts() {
  if grep -qsF "$POLICY_MARK" "$POLICY"; then
    rm -f "$POLICY"
  fi
  rm -f "$POLICY".headgate-??????
}

units_of() {
  dpkg-query -L "$@" 2>/dev/null |
    sed -nE 's#^(/usr)?/lib/systemd/system/([^/]+\.(service|socket|timer|path))$#\2#p' | sort -u
}

disable_new_units() {
  local added unit
  mapfile -t added <"$JOURNAL"
  [ "${#added[@]}" -gt 0 ] || return 0
  mapfile -t added < <(installed "${added[@]}")
  [ "${#added[@]}" -gt 0 ] || return 0
  if command -v systemctl >/dev/null; then
    while read -r unit; do
      if [ "$(systemctl is-enabled "$unit" 2>/dev/null)" = enabled ]; then
        # Without a running systemd there is nothing to stop, and the links go all the same.
        systemctl disable --now "$unit" || systemctl disable "$unit"
      fi
    done < <(units_of "${added[@]}")
  else # no systemd yet: the links that it would follow, and the ones that other inits do
    units_of "${added[@]}" | xargs -rI{} find /etc/systemd/system -type l -lname '*/{}' -delete
    dpkg-query -L "${added[@]}" | sed -nE 's#^/etc/init\.d/([^/]+)$#\1#p' | sort -u |
      xargs -rI{} update-rc.d {} disable
  fi >>"$LOG" 2>&1
}

# Packages of the journal that are neither whole nor absent.
half_installed() {
  local begun
  mapfile -t begun <"$JOURNAL"
  [ "${#begun[@]}" -gt 0 ] || return 0
  dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${begun[@]}" 2>/dev/null |
    awk '$2 !~ /^(installed|not-installed|config-files)$/ { print $1 }' || true
}

# --- how to add them without an upgrade --------------------------------------------------------

simulate() { "${apt[@]}" "${pinned[@]}" --simulate install "$@"; }

# Lines "NAME OLD NEW" of packages that the simulated run in $plan would upgrade.
upgrades() {
  awk '$1 == "Inst" && $3 ~ /^\[/ {
    old = substr($3, 2, length($3) - 2); new = substr($4, 2)
    if (old != new) print $2, old, new
  }' <<<"$plan"
}

added() { awk '$1 == "Inst" && $3 !~ /^\[/ { print $2 }' <<<"$plan"; }

# An installed library keeps its version if its new siblings come in that version, too.
pin_installed_versions() {
  local name old source
  while read -r name old _; do
    source=$(dpkg-query -W -f '${source:Package}\n' "$name" | head -n 1)
    printf 'Package: src:%s\nPin: version %s\nPin-Priority: 1001\n\n' "$source" "$old"
  done < <(upgrades) >>"$work/preferences"
  pinned=(-o "Dir::Etc::preferences=$work/preferences")
}

# Finds a plan for packages $@ that upgrades and removes nothing, or says why there is none.
make_plan() {
  local before='' now
  pinned=()
  : >"$work/preferences"
  if [ -r /etc/apt/preferences ]; then
    { cat /etc/apt/preferences && echo; } >"$work/preferences"
  fi
  while true; do
    plan=$(simulate "$@" 2>&1) || return 1
    now=$(upgrades)
    [ -n "$now" ] || return 0
    [ "$now" != "$before" ] || return 3
    pin_installed_versions
    before=$now
  done
}

find_plan() {
  local status=0
  if [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -print -quit)" ]; then
    update_lists
  fi
  make_plan "$@" || status=$?
  if [ "$status" -ne 0 ] && [ -z "$updated" ]; then
    update_lists
    status=0
    make_plan "$@" || status=$?
  fi
  case $status in
    0) return 0 ;;
    3) say "adding the packages would upgrade what is installed here, so nothing was done:" ;;
    *) say "apt-get sees no way to add the packages, so nothing was done:" ;;
  esac
  { if [ "$status" -eq 3 ]; then upgrades; else tail -n 15 <<<"$plan"; fi; } | sed 's/^/    /' >&2
  return 3
}

update_lists() {
  local tries=0
  say "fetching the distribution's package lists (apt-get update)"
  until apt-get -q update >"$work/update" 2>&1; do
    cat "$work/update" >>"$LOG"
    # A machine that has just started often updates itself; apt waits for dpkg's lock, not for this.
    if ! grep -q 'Could not get lock' "$work/update" || [ $((tries += 1)) -gt 60 ]; then
      die "apt-get update failed: $(tail -n 3 "$work/update")"
    fi
    [ "$tries" -gt 1 ] || say "another apt is running; waiting for it"
    sleep 5
  done
  updated=yes
}

# --- doing it ----------------------------------------------------------------------------------

# Reads apt's status lines, prints one for each tenth of the way.
show_progress() {
  awk -F: '
    $1 == "dlstatus" { what = "downloading" }
    $1 == "pmstatus" { what = "installing" }
    what && int($3 / 10) != last[what] + 0 {
      last[what] = int($3 / 10)
      printf "set-up:   %s, %d %%\n", what, last[what] * 10
      fflush()
    }' >&2
}

fetch_and_install() {
  "${apt[@]}" "${pinned[@]}" "${repair[@]}" -y -o APT::Status-Fd=3 install "$@" \
    3>&1 >>"$LOG" 2>&1 </dev/null | show_progress
}

finish() {
  local status=$?
  set +e # whatever fails here is in the log, and the rest must be done all the same
  trap '' INT TERM HUP
  if [ -e "$JOURNAL" ]; then
    if [ "$status" -ne 0 ] && [ -n "$(half_installed)" ]; then
      dpkg --force-confdef --force-confold --configure -a >>"$LOG" 2>&1 </dev/null ||
        say "some packages are half installed; the next run goes on with them (see $LOG)"
    fi
    disable_new_units
    [ -n "$(half_installed)" ] || rm -f "$JOURNAL"
    rmdir "${JOURNAL%/*}" 2>/dev/null || true
  fi
  allow_service_starts
  rm -rf "$work"
  exit "$status"
}

main() {
  local parts=("$@") names
  repair=() updated=''
  if [ -z "$(missing "${parts[@]}")" ] && ! interrupted; then
    return 0
  fi
  command -v apt-get >/dev/null || die "this machine has no apt-get"
  if [ "$(id -u)" -ne 0 ]; then
    may_become_root ask || die "adding packages needs root: $(missing "${parts[@]}" | paste -sd' ')"
    exec_as_root "$here/packages.sh" "${parts[@]}"
  fi

  # apt-get inherits the lock: it is held until the last apt-get of a killed run has ended.
  exec 8>"$LOCK"
  flock -n 8 || { say "another set-up is adding packages; waiting for it" && flock 8; }
  umask 022
  work=$(mktemp -d)
  trap finish EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  if interrupted; then
    say "an earlier set-up was cut off; going on where it stopped"
    mkdir -p "${JOURNAL%/*}" && touch "$JOURNAL"
    repair=(--fix-broken)
    deny_service_starts
    dpkg --force-confdef --force-confold --configure -a >>"$LOG" 2>&1 </dev/null || true
  fi
  mapfile -t names < <(missing "${parts[@]}")
  if [ "${#names[@]}" -eq 0 ] && ! { [ -e "$JOURNAL" ] && [ -n "$(half_installed)" ]; }; then
    return 0
  fi

  apt+=("${repair[@]}")
  find_plan "${names[@]}"
  say "distribution packages to add: $(added | wc -l); nothing installed is upgraded or removed"
  explain "${parts[@]}"
  say "  (details: $LOG)"
  mkdir -p "${JOURNAL%/*}"
  added >>"$JOURNAL"
  deny_service_starts
  if ! fetch_and_install "${names[@]}"; then
    [ -z "$updated" ] || die "apt-get failed: $(tail -n 5 "$LOG")"
    say "apt-get failed; the package lists may be old, so once more with new ones"
    update_lists
    find_plan "${names[@]}"
    added >>"$JOURNAL"
    fetch_and_install "${names[@]}" || die "apt-get failed: $(tail -n 5 "$LOG")"
  fi
  [ -z "$(missing "${parts[@]}")" ] ||
    die "apt-get ended, but these are not installed: $(missing "${parts[@]}" | paste -sd' ')"
}

main "$@"
