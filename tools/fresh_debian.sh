#!/usr/bin/env bash
# Shows that the two commands of the README work on a fresh Debian with git, make and ca-certificates, twice in a row, the
# second time without a network.
#
#   tools/fresh_debian.sh SUITE MIRROR [FOLDER]      SUITE: bookworm, trixie; run as root; needs debootstrap and unshare
#
# Environment: TORCH, TORCH_INDEX, PIP_ARGS as for make. PIP_CONF=FILE copies pip's configuration; PIP_BIND="DIR ..." makes
# folders that it names visible inside. COMMANDS="make demo|make test" is what is tried.
set -euo pipefail
suite=${1:?SUITE} mirror=${2:?MIRROR} root=${3:-/var/tmp/fresh-$1}
project=$(cd "$(dirname "$0")/.." && pwd)

if [ ! -e "$root/etc/debian_version" ]; then
  debootstrap --variant=minbase --include=git,make,ca-certificates "$suite" "$root" "$mirror"
fi
rm -rf "$root/root/project"
git clone -q "$project" "$root/root/project"

# What this machine needs to reach its mirrors: name resolution, proxies, certificates.
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp -rL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
[ -z "${PIP_CONF:-}" ] || cp -L "$PIP_CONF" "$root/etc/pip.conf"

inside() {  # inside NETWORK COMMAND: a mount namespace of its own, and, unless NETWORK is yes, no network but loopback
  local network=$1 command=$2 flags=(--mount --fork --pid --kill-child)
  [ "$network" = yes ] || flags+=(--net)
  unshare "${flags[@]}" bash -euo pipefail -c '
    root=$1; network=$2; command=$3; binds=$4
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs tmpfs "$root/dev/shm" 2>/dev/null || true
    for folder in $binds; do mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; done
    [ "$network" = yes ] || ip link set lo up 2>/dev/null || true
    exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 CI="${CI:-}" \
      TORCH="${TORCH:-torch==2.13.0}" TORCH_INDEX="${TORCH_INDEX:-}" PIP_ARGS="${PIP_ARGS:-}" \
      ${http_proxy:+http_proxy=$http_proxy} ${https_proxy:+https_proxy=$https_proxy} \
      bash -euo pipefail -c "cd /root/project && $command"
  ' bash "$root" "$network" "$command" "${PIP_BIND:-}"
}

time_of() {  # not `if`-able: set -e must end the script when the command fails
  local started=$SECONDS
  "$@"
  echo "== took $((SECONDS - started)) s: $3 (network: $2)"
}
IFS='|' read -ra commands <<<"${COMMANDS:-make demo|make test}"
for network in yes no; do
  for command in "${commands[@]}"; do time_of inside "$network" "$command"; done
done
echo "== $suite: ${commands[*]}: work, twice, the second time offline"
