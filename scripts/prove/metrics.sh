#!/usr/bin/env bash
# A real Prometheus scrapes many mounts: what promtool says of the text, how long a scrape takes, and that every query of the
# Grafana dashboard has an answer. Then a daemon is killed, and only its mounts are down.
# Usage: scripts/prove/metrics.sh [MOUNTS]   (default 200)
. "$(dirname "$0")/lib.sh"
bash "$(dirname "$0")/../need.sh" prometheus=prometheus python3=python3
MOUNTS=${1:-200}

started=()
let_go() {
    local process
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; wait "$process" 2>/dev/null || true; done
    "$HOLDFAST" umount "$IMAGE" >/dev/null 2>&1 || true
    "$HOLDFAST" umount "$WORK/other" >/dev/null 2>&1 || true
}
make 1G
attach
mkdir "$WORK/mounts" "$WORK/other"
for n in $(seq "$MOUNTS"); do
    mkdir "$WORK/mounts/$n"
    "$HOLDFAST" fork "$DIR" "fork-$n" >/dev/null
    "$HOLDFAST" mount "$IMAGE:fork-$n" "$WORK/mounts/$n"
done
"$HOLDFAST" mkfs -q --size 64M "$WORK/other.img"
"$HOLDFAST" mount "$WORK/other.img" "$WORK/other"

"$HOLDFAST" metrics --listen 127.0.0.1:0 2>"$WORK/said" &
started+=($!)
for _ in $(seq 100); do grep -q http "$WORK/said" && break; sleep 0.1; done
address=$(sed -n 's|.*http://\(.*\)/metrics.*|\1|p' "$WORK/said")
"$HOLDFAST" metrics | promtool check metrics >"$WORK/checked" 2>&1 || { cat "$WORK/checked"; fail "promtool finds fault"; }
python3 "$(dirname "$0")/metrics.py" "$HOLDFAST" "$WORK" "$address" "$MOUNTS" "$(dirname "$0")/../../packaging/grafana-dashboard.json"
