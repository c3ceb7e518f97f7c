"""What a login node is given: sshd's lines, the principals script, the timers; pure text."""

from collections.abc import Iterator, Sequence

from token_translator.nodes.settings import Node

SSHD_CONFIG = "/etc/ssh/sshd_config.d/50-headgate.conf"
KRL_OPTIONS = "/etc/headgate/krl-fetch.options"


def sshd(node: Node) -> str:
    """The lines of sshd_config, each with its reason; for a file that sshd_config includes."""
    return "".join(f"{line}\n" for line in _sshd(node))


def _sshd(node: Node) -> Iterator[str]:
    yield f"# {SSHD_CONFIG}: root's, mode 0644."
    yield "# sshd takes the first value it meets of a keyword, so this must be read before any"
    yield "# other of the same; prove it with --check."
    yield ""
    yield "# Whose user certificates are believed. One public key a line; two while they rotate."
    yield f"TrustedUserCAKeys {node.user_ca}"
    yield ""
    yield "# Which of them open an account: those of the principals that are printed for it, and"
    yield "# none for root, staff and services. Without this line a certificate that names an"
    yield "# account as such would open it."
    yield from _principals(node)
    yield ""
    yield "# What was revoked. Without the file nobody gets in with any key: there has to be one"
    yield f"# before sshd is reloaded, and {node.krl_fetch} keeps it current."
    yield f"RevokedKeys {node.revoked_keys}"
    yield ""
    yield "# PAM's account stage: an account that expired (chage -E 0; of a directory, too) is"
    yield "# refused in spite of a valid certificate. A locked password (usermod -L) is not."
    yield "UsePAM yes"
    yield ""
    yield "# The session program is named by the certificates:"
    yield f"#   {node.session_program}, root's, mode 0755."
    yield "# No ForceCommand for these accounts anywhere: sshd's own would replace that of the"
    yield "# certificate, and with it the one job that it was limited to. And no AcceptEnv that"
    yield "# lets in what a shell or a loader obeys (BASH_ENV, LD_PRELOAD, SHELLOPTS, …)."
    if node.host_certificate:
        yield ""
        yield "# Who we are: clients that trust the site's host authority ask no question. An"
        yield "# expired one makes them fall back on the bare key, or refuse. (No HostKey line:"
        yield "# a single one would take the place of all the keys that sshd has by itself.)"
        yield f"HostCertificate {node.host_certificate}"
    if node.second_factor:
        yield ""
        yield "# People need a second factor on this node; keyboard-interactive is PAM's."
        yield "KbdInteractiveAuthentication yes"
        yield "AuthenticationMethods publickey,keyboard-interactive"
    yield from _matches(node)


def _principals(node: Node) -> Iterator[str]:
    if node.principals == "files":
        yield f"AuthorizedPrincipalsFile {node.principals_folder}/%u"
        return
    yield f"AuthorizedPrincipalsCommand {node.principals_program} %u %U"
    yield f"AuthorizedPrincipalsCommandUser {node.principals_user}"


def _matches(node: Node) -> Iterator[str]:
    gateways = [address for address in node.gateways if address not in node.front_doors]
    if node.front_doors:
        yield ""
        yield "# The front door relays people it has seen a token of: it cannot answer for a"
        yield "# second factor. Certificates only, so that no key of a home folder comes this way."
        yield from _match_address(node.front_doors)
    if gateways:
        yield ""
        yield "# The gateway works while nobody sits there: its certificates are enough. Nothing"
        yield "# but the session program comes from it: no terminal, no forwarding."
        yield from _match_address(gateways)
        yield "    PermitTTY no"
        yield "    DisableForwarding yes"
    if node.people_group:
        yield ""
        yield "# A key in a home folder outlives a suspension: for these accounts there is none."
        yield f"Match Group {node.people_group}"
        yield "    AuthorizedKeysFile none"
        yield "    AuthorizedKeysCommand none"
    if node.front_doors or gateways or node.people_group:
        yield ""
        yield "Match all"


def _match_address(addresses: Sequence[str]) -> Iterator[str]:
    yield f"Match Address {','.join(addresses)}"
    yield "    AuthenticationMethods publickey"
    # The name that releases before 8.5 know, too.
    yield "    PubkeyAcceptedKeyTypes *-cert-v01@openssh.com"


def principals_program(node: Node) -> str:
    """The script that prints an account's principals; sshd passes name and uid: no look-up."""
    linked = " | ".join(node.linked)
    also = f"\ncase $1 in {linked}) ours=yes ;; esac" if linked else ""
    places = " ".join(f"'{place}'" for place in _places(node))
    return f"""\
#!/bin/sh
# {node.principals_program}: root's, mode 0755, like every folder above it.
# Which certificates open an account. sshd runs this as {node.principals_user}, with the account's
# name and uid: lines for accounts of the range {node.uid_first}-{node.uid_last}, and those linked
# by hand; nothing for anybody else, and for root never. Any other exit status denies.
set -eu
LC_ALL=C
export LC_ALL
case $2 in '' | *[!0-9]*) exit 1 ;; esac
case $1 in '' | [!a-z_]* | *[!a-z0-9_.-]*) exit 0 ;; esac
ours=no
if [ "$2" -ge {node.uid_first} ] && [ "$2" -le {node.uid_last} ]; then ours=yes; fi{also}
if [ "$2" -eq 0 ] || [ "$ours" = no ]; then exit 0; fi
for place in {places}; do printf 'hg:%s:%s\\n' "$place" "$1"; done
"""


def _places(node: Node) -> list[str]:
    return [node.realm, *(f"{node.realm}@{host_set}" for host_set in node.host_sets)]


def principals_files(node: Node) -> str:
    """The commands that write a principals file for each account of the range."""
    ours = f"($3 >= {node.uid_first} && $3 <= {node.uid_last})"
    ours += "".join(f' || $1 == "{name}"' for name in node.linked)
    return f"""\
# {node.principals_folder}: root's, mode 0755; one file an account, root's, mode 0644.
# Run this again (from a timer) whenever there are new accounts; it takes away what is gone.
install -d -o root -g root -m 0755 {node.principals_folder}
fresh=$(mktemp -d {node.principals_folder}.XXXXXX) && chmod 0755 "$fresh"
getent passwd | awk -F: -v to="$fresh" '
  $1 ~ /^[a-z_][a-z0-9_.-]*$/ && $3 != 0 && ({ours}) {{
    file = to "/" $1; n = split("{" ".join(_places(node))}", place, " ")
    for (i = 1; i <= n; i++) printf "hg:%s:%s\\n", place[i], $1 > file
    close(file) }}'
chmod 0644 "$fresh"/* 2>/dev/null || true
mv -T {node.principals_folder} "$fresh.old" && mv -T "$fresh" {node.principals_folder}
rm -rf "$fresh.old"
"""


def units(node: Node) -> str:
    """The fetcher of the revocation list: its options, and the units that the package has, too."""
    tokens = (node.tokens or "https://tokens.example.org").rstrip("/")
    folder = node.revoked_keys.rsplit("/", 1)[0]
    return f"""\
# useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin {node.krl_user}
# install -d -o root -g root -m 0755 {KRL_OPTIONS.rsplit("/", 1)[0]}
# install -d -o {node.krl_user} -g root -m 0755 {folder}
# ---- {KRL_OPTIONS}
# root's, mode 0644
--url {tokens}/v1/krl
--file {node.revoked_keys}
--user-ca {node.user_ca}
--alarm-after {node.krl_max_age}
# ---- /etc/systemd/system/headgate-krl-fetch.service
[Unit]
Description=headgate: fetch the SSH revocation list
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User={node.krl_user}
ExecStart={node.krl_fetch} @{KRL_OPTIONS}
ReadWritePaths={folder}
ProcSubset=pid
PrivateUsers=yes

NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
ProtectProc=invisible
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
PrivateDevices=yes
PrivateTmp=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
RemoveIPC=yes
UMask=0022

# ---- /etc/systemd/system/headgate-krl-fetch.timer
[Unit]
Description=headgate: fetch the SSH revocation list, from time to time

[Timer]
OnBootSec=15
OnUnitActiveSec=60
RandomizedDelaySec=15
AccuracySec=5

[Install]
WantedBy=timers.target
"""


def host_certificate(node: Node) -> str:
    """The script that enrols the host key with a one-time token, and renews it without."""
    tokens = (node.tokens or "https://tokens.example.org").rstrip("/")
    key = node.host_key or "/etc/ssh/ssh_host_ed25519_key"
    return f"""\
#!/bin/sh
# headgate-host-certificate [enrol]: `enrol` reads the token of `headgate-tokens enrol-host` from
# standard input, once; without it, from a weekly timer, the certificate is renewed. The host key
# itself signs for both. Root's, mode 0755.
set -eu
umask 077
key={key} url={tokens}/v1/host-certificates
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
at=$(date +%s) public=$(cut -d' ' -f1,2 "$key.pub")
: > "$work/header"
if [ "${{1:-}}" = enrol ]; then
    read -r token
    printf 'Authorization: Bearer %s\\n' "$token" > "$work/header"
    at=$(date +%s) # now that the token is typed
fi
printf 'headgate-host-certificate %s %s' "$at" "$public" > "$work/text"
ssh-keygen -q -Y sign -f "$key" -n headgate-host-certificate "$work/text"
signature=$(awk '{{ printf "%s\\\\n", $0 }}' "$work/text.sig")
printf '{{"public_key": "%s", "at": %s, "signature": "%s"}}' "$public" "$at" "$signature" \\
    > "$work/body"
fail() {{ printf 'headgate-host-certificate: %s\\n' "$1" >&2; exit 1; }}
status=$(curl --silent --show-error --max-time 30 --max-filesize 65536 --header @"$work/header" \\
    --header 'Content-Type: application/json' --header 'Accept: text/plain' \\
    --output "$work/certificate" --write-out '%{{http_code}}' \\
    --data @"$work/body" "$url" 2> "$work/error") ||
    [ "${{status:-0}}" -ge 400 ] || fail "$(cat "$work/error")"
if [ "$status" != 201 ]; then
    # The translator's own words (RFC 9457), if it was the translator who refused.
    said() {{
        LC_ALL=C sed -n 's/.*"'"$1"'": *"\\(\\([^"\\\\]\\|\\\\.\\)*\\)".*/\\1/p' \\
            "$work/certificate" | head -n 1 | cut -c 1-300 |
            sed 's/\\\\\\(["\\\\]\\)/\\1/g' | tr -cd ' -~'
    }}
    detail=$(said detail) code=$(said code)
    fail "refused with status $status${{detail:+: $detail}}${{code:+ ($code)}}"
fi
ssh-keygen -L -f "$work/certificate" > /dev/null 2>&1 || fail "the answer is not a certificate"
install -o root -g root -m 0644 "$work/certificate" "$key-cert.pub.new"
mv -f "$key-cert.pub.new" "$key-cert.pub"
echo "now reload sshd: it reads its certificate when it starts"
"""


def everything(node: Node, digest: str, named: str) -> str:
    """All of it, in the order in which it is done.

    `digest` is the session program's; `named` the options that name the node once more.
    """
    principals = (
        principals_program(node) if node.principals == "command" else principals_files(node)
    )
    tokens = (node.tokens or "https://tokens.example.org").rstrip("/")
    parts = {
        "1. the session program": f"""\
# {node.session_program}
# root's, mode 0755, like every folder above it. It is this release's one file for nodes;
# SHA-256 {digest or "(of the release that you install)"}
""",
        "2. the authorities": f"""\
# curl --fail -H 'Accept: text/plain' {tokens}/v1/ca > {node.user_ca}
# root's, mode 0644. Before you believe it: its fingerprints (ssh-keygen -lf {node.user_ca})
# must be among those that `headgate-signer authorities` prints (as headgate-signer, on its host).
""",
        "3. the revocation list, before sshd is told of it": units(node),
        "4. principals": principals,
        "5. sshd": sshd(node),
        "6. prove it, as root": f"# headgate-tokens node-setup --check {named}\n",
    }
    if node.host_certificate:
        parts["7. the host certificate"] = host_certificate(node)
    return "\n".join(f"# ======== {title}\n{text}" for title, text in parts.items())
