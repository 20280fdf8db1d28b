#!/usr/bin/env bash
# The project's own mount tests on a fork, beside BESIDE mounted forks of the same volume: those of the FUSE server in the process of
# the test, and random scripts against the model through one daemon, which is killed in half of them. For root.
# usage: beside.sh [BESIDE] [TIMES]   (default: 50 mounts, 5 times as many scripts as in make test)
set -euo pipefail
cd "$(dirname "$0")/../.."
export HOLDFAST_BESIDE=${1:-50} HOLDFAST_SEEDS=${2:-5}
echo "mount tests in a fork, $HOLDFAST_BESIDE mounts beside it"
cargo test --locked --quiet -p holdfast-fuse --test mount
cargo test --locked --quiet -p holdfast-cli --test scripts_on_the_mount beside
