# What this machine allows: sourced by the scripts beside it, never run.
# shellcheck shell=bash
shopt -s inherit_errexit # or $(…) would go on after a failure
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin # root by way of su may have a plain user's

say() { printf '%s\n' "set-up: $*" >&2; }

die() {
  say "$*"
  exit 1
}

# Settings of the network and of the suite that sudo would drop.
readonly KEPT_THROUGH_SUDO=http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY,\
PIP_CERT,PIP_CONFIG_FILE,PIP_EXTRA_INDEX_URL,PIP_FIND_LINKS,PIP_INDEX_URL,PIP_TRUSTED_HOST,\
REQUESTS_CA_BUNDLE,SSL_CERT_FILE,CI,PYTHONDONTWRITEBYTECODE

# Succeeds if commands may run as root. Asks for sudo's password only with `ask`, and only a person.
may_become_root() {
  [ "$(id -u)" -eq 0 ] && return 0
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null && return 0
  [ "${1:-}" = ask ] && [ -t 0 ] || return 1
  id -nG | grep -qwE 'sudo|wheel|admin' || return 1
  say "this needs root; sudo may ask for your password (without root: SITE=embedded)"
  sudo -v
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo --preserve-env="$KEPT_THROUGH_SUDO" -- "$@"
  fi
}

# Replaces the shell, so that signals and the exit status are the command's own.
exec_as_root() {
  [ "$(id -u)" -eq 0 ] && exec "$@"
  # What root leaves in a person's working copy, that person could not remove.
  export PYTHONDONTWRITEBYTECODE=1
  exec sudo --preserve-env="$KEPT_THROUGH_SUDO" -- "$@"
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Prints why the real site cannot run here; prints nothing if it can.
why_no_real_site() {
  if ! may_become_root ask; then
    echo "it needs root (or sudo), and this account is $(id -un)"
  elif ! command -v apt-get >/dev/null; then
    echo "it is made of Debian's or Ubuntu's packages, and this machine has no apt-get"
  elif [ -x /usr/bin/python3 ] && ! new_enough /usr/bin/python3; then
    echo "its services run from /usr/bin/python3, which is older than 3.11 here"
  elif ! as_root unshare --mount --pid --fork --mount-proc true 2>/dev/null; then
    echo "it lives in its own mount and PID namespaces, and this machine does not let root make any"
  fi
}

# The site that was asked for: real, embedded, or nothing for whatever this machine can do.
check_site() {
  case "${SITE:-}" in
    '' | real | embedded) ;;
    *) die "SITE is '$SITE'; it may be real or embedded" ;;
  esac
}
