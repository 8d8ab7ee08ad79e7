#!/usr/bin/env bash
# A bare Debian in a folder, as a machine of its own; needs root, debootstrap and a network.
#   root.sh make SUITE ROOT PACKAGE...              from $PLIMSOLL_DEBIAN_MIRROR, or Debian's own
#   root.sh run ROOT FOLDER [NAME=VALUE]... COMMAND...   COMMAND in ROOT's FOLDER, with nothing of our environment but what leads to the network
#   root.sh run ROOT --bind HERE THERE ...          first with the folder HERE as ROOT's THERE; unbound when COMMAND ends
set -euo pipefail

# Its own mounts: nothing is left mounted, however a command ends, so that ROOT can be removed.
enter='set -e; root=$1; shift
while [ "$1" = --bind ]; do mkdir -p "$root$3"; mount --bind "$2" "$root$3"; shift 3; done
mount --rbind /dev "$root/dev"; mount -t proc proc "$root/proc"
exec chroot "$root" /usr/bin/env -i -C "$1" PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
  http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" "${@:2}"'

run() { # ROOT...
  local root
  root=$(cd "$1" && pwd)
  unshare --mount bash -c "$enter" run "$root" "${@:2}"
}

case ${1:-} in
  make)
    suite=$2 root=$3
    # What more than the least is wanted comes by apt-get: debootstrap does not know packages by what they provide.
    debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$suite" "$root" \
      "${PLIMSOLL_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    run "$root" / apt-get update -q
    run "$root" / DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${@:4}"
    ;;
  run) run "${@:2}" ;;
  *) sed -n '2,5p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//' >&2 && exit 2 ;;
esac
