#!/usr/bin/env bash
# Everything that must hold before a change lands: format, lints, documentation, tests.
# Mounts that the tests make are in temporary directories below one folder; what a killed test leaves is removed.
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/need.sh ps=procps python3=python3 fusermount3=fuse3 setfattr=attr setfacl=acl sqlite3=sqlite3 git=git cc=build-essential mkfs.ext4=e2fsprogs mkfs.vfat=dosfstools fuse2fs=fuse2fs fuse-overlayfs=fuse-overlayfs bindfs=bindfs bsdtar=libarchive-tools valgrind=valgrind file=file fakeroot=fakeroot patch=patch
# A machine without systemd stays without it, but CI tests its units as well where that can be had.
[ -z "${CI:-}" ] || bash scripts/need.sh systemd-analyze=systemd || true

# Two runs at once would change the same settings of the machine under each other. Whoever may not open the device
# changes none. Nothing that is started here keeps the lock.
if [ -r /dev/fuse ]; then
    exec 9</dev/fuse
    flock -n 9 || { echo "waiting for another run of scripts/test.sh on this machine"; flock 9; }
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-test.XXXXXX")
# Tests that act as another user must get to their files.
chmod 755 "$work"
export TMPDIR=$work
# Whether the kernel offers rings to mounts; as it was, in the end.
rings=/sys/module/fuse/parameters/enable_uring
offered=$(cat "$rings" 2>/dev/null || true)
# Tests that mount as an ordinary user need what udev gives everybody.
fuse_mode=$(stat -c %a /dev/fuse 2>/dev/null || true)
# Where the owner of a mount may end its connection. Systemd mounts it; elsewhere it is mounted for the tests.
connections=/sys/fs/fuse/connections
has_mounted_connections=
# What is tested in the background.
beside=
clean_up() {
    [ -z "$beside" ] || kill -- "-$beside" || true
    [ -z "$has_mounted_connections" ] || umount -l "$connections" || true
    if [ -n "$fuse_mode" ] && [ "$(id -u)" -eq 0 ]; then chmod "$fuse_mode" /dev/fuse || true; fi
    if [ -w "$rings" ]; then echo "$offered" >"$rings"; fi
    # Deepest first. The dead mount of a killed daemon is no directory any more for rm.
    awk -v at="$work/" 'index($5, at) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
        while read -r dir; do umount -l "$dir" || fusermount3 -uz "$dir" || true; done
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
if [ -n "$fuse_mode" ] && [ "$(id -u)" -eq 0 ]; then chmod 666 /dev/fuse; fi
if [ -d "$connections" ] && [ "$(id -u)" -eq 0 ] && ! mountpoint -q "$connections"; then
    if mount -t fusectl fusectl "$connections"; then has_mounted_connections=1; fi
fi
# Whatever it is, most tests go through /dev/fuse.
if [ -w "$rings" ]; then echo N >"$rings"; fi

# A first build gains nothing from what is kept for the next one.
[ -e "${CARGO_TARGET_DIR:-target}/debug" ] || export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"

# A shell without a terminal starts what runs in the background deaf to interrupts, which tests send.
step() {
    local began=$SECONDS failed=0
    printf '\n== %s\n' "$*"
    env --default-signal=INT "$@" 9<&- || failed=$?
    echo "$((SECONDS - began)) s for $*" >>"$work/steps"
    return "$failed"
}

step cargo fmt --all --check
# With the feature of the mutants, as the tests below; it changes one file of base.
step cargo clippy --locked --workspace --all-targets --features holdfast-sim/mutants --quiet -- -D warnings
# What is shipped has no feature that another crate of the workspace asks for. The tests below have all of them.
step cargo clippy --locked -p holdfast-cli --quiet -- -D warnings
RUSTDOCFLAGS="-D warnings" step cargo doc --locked --workspace --no-deps --quiet
status=0
# One build for all. Its features add switches: only the simulator chooses mutants, only what measures chooses what was done before.
# For some of the crates cargo would build those below with other features, once more: it is asked for all, and runs a part of the tests.
everything=(--locked --workspace --features holdfast-sim/mutants)
runner="target.'cfg(unix)'.runner=['bash', '$PWD/scripts/test-part.sh']"
tested() {
    local part=$1
    shift
    HOLDFAST_TESTS=$part step cargo --config "$runner" test "${everything[@]}" --no-fail-fast "$@" 2>&1
}
step cargo test "${everything[@]}" --no-run 2>&1 | tee -a "$work/tests.log" || status=$?
# Without the switches, as shipped: what asks for one is told where it is.
step cargo test --locked -p holdfast-base --lib switch 2>&1 | tee -a "$work/tests.log" || status=$?
# Those through the kernel mostly wait for other processes: they run beside the others, which compute and give way.
# A process group of their own, so that they can be ended.
set -m
{ renice -n 5 -p "$BASHPID" >/dev/null || true; tested others; } >"$work/beside.log" 2>&1 &
beside=$!
set +m
# Twice as many at once as there are processors are done sooner.
through_the_kernel() {
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))} tested kernel "$@" | tee -a "$work/tests.log" || status=$?
}
through_the_kernel --tests
# Once more what differs: with files that the kernel opens itself, and on the other way of requests, where root may allow it.
HOLDFAST_OPEN=kernel through_the_kernel --test mount --test scripts_on_the_mount
if [ -w "$rings" ]; then
    echo Y >"$rings"
    # What was skipped above for want of rings is tested now.
    sed -i '/SKIPPED .* offers\( no\)\? rings/d' "$work/tests.log"
    HOLDFAST_TRANSPORT=rings through_the_kernel --test mount --test mounting --test scripts_on_the_mount
    HOLDFAST_TRANSPORT=rings HOLDFAST_OPEN=kernel through_the_kernel --test mount
    # The threads of rings are among those that are refused, and a kernel may refuse rings.
    through_the_kernel --test refused_threads
    # `--lib` would compile libraries that have no tests.
    through_the_kernel --tests -- rings_that_are_refused
fi
printf '\n'
wait "$beside" || status=$?
beside=
cat "$work/beside.log"
cat "$work/beside.log" >>"$work/tests.log"
if grep '^warning: `holdfast.* generated ' "$work/tests.log"; then status=1; fi
# What was not done, and for want of what: such a test counts as passed. Root with /dev/fuse should have done it. Without mounts CI has tested
# little, and fails.
grep -o 'SKIPPED [^ ]*: .*' "$work/tests.log" | sort -u >"$work/skipped" || true
if [ -s "$work/skipped" ]; then
    if [ -n "${CI:-}" ] || { [ "$(id -u)" -eq 0 ] && [ -e /dev/fuse ]; }; then
        printf '\nNOT TESTED, although this machine is meant to test everything:\n'
    else
        printf '\nnot tested on this machine:\n'
    fi
    sed 's/^SKIPPED /  /' "$work/skipped"
    if [ -n "${CI:-}" ] && grep -q -e 'no /dev/fuse' -e 'cannot mount' -e 'nothing can be mounted' "$work/skipped"; then
        echo 'continuous integration must mount: give it root and /dev/fuse'
        status=1
    fi
fi
printf '\n'
cat "$work/steps"
# One line for all the crates and their documentation.
awk -v wanting="$(wc -l <"$work/skipped")" '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END { printf "\ntotal: %d passed, %d failed, %d ignored; %d skipped for want of something\n", passed, failed, ignored, wanting }' "$work/tests.log"
exit "$status"
