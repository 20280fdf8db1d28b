#!/bin/sh
# What volumes of several sizes take of their host, through their life, in MiB: `scripts/host_use.sh HOLDFAST [DIR [SIZE...]]`.
# Mounts in DIR, by default a new directory; the numbers in docs/MEASURED.md are of such a run.
set -eu
holdfast=$1
dir=${2:-$(mktemp -d)}
if [ $# -gt 2 ]; then shift 2; else set -- 1G 8G 64G 1T; fi

cd "$dir"
mkdir -p m
trap '"$holdfast" umount m 2>/dev/null || true; rm -f v; rmdir m' EXIT

taken() { sync -f m 2>/dev/null || true; du -k v | awk '{ printf " %.1f |", $1 / 1024 }'; }
mount() { "$holdfast" mount v m 2>/dev/null; }
umount() { "$holdfast" umount m; }

echo "| size | made | one small file | unmounted | 20 MB in 1000 files | at rest | unmounted | 1 GiB more | all removed, unmounted | mounted again |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for size; do
  printf '| %s |' "$size"
  "$holdfast" mkfs -q -s "$size" v
  taken
  mount; echo x >m/x; taken
  umount; taken
  mount; mkdir m/d
  for n in $(seq 1000); do head -c 20000 /dev/urandom >"m/d/$n"; done
  taken
  sleep 14; taken
  umount; taken
  mount; head -c 1G /dev/zero | tr '\0' x >m/large; taken
  rm -r m/d m/large m/x
  umount; taken
  mount; ls m >m.list; rm m.list; taken
  umount
  rm v
  echo
done
