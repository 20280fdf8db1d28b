#!/bin/sh
# After files of the package came or went: devices that are plugged in already get or lose their links, and systemd reads
# the units. Where neither runs nothing is to be done, and the package never fails by it.
set -e
if [ -S /run/udev/control ] && command -v udevadm >/dev/null; then
    udevadm control --reload || true
    udevadm trigger --subsystem-match=block || true
fi
if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
    systemctl daemon-reload || true
fi
