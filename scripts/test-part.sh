#!/usr/bin/env bash
# Runs a test program for cargo, if it is of the part of scripts/test.sh that $HOLDFAST_TESTS names: `kernel`, of the crates whose tests go
# through the kernel, or `others`, with the examples of all documentation.
part=others
case "$CARGO_PKG_NAME:$1" in
    holdfast-fuse:*/deps/* | holdfast-daemon:*/deps/* | holdfast-cli:*/deps/*) part=kernel ;;
esac
[ "$part" = "$HOLDFAST_TESTS" ] || exit 0
exec "$@"
