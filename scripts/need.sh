#!/usr/bin/env bash
# Makes sure that programs are there, installing Debian packages if they are missing.
# usage: need.sh program=package...     e.g. need.sh fusermount3=fuse3 cc=gcc
set -euo pipefail

missing=()
for pair in "$@"; do
    # Tools for the superuser are not in everybody's search path.
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
done
[ ${#missing[@]} -gt 0 ] || exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if ! command -v apt-get >/dev/null; then
    echo "please install: ${missing[*]} (or what they are called here)" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "please run: sudo ${install[*]}" >&2
    exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}" >/dev/null; }
