#!/usr/bin/env bash
# Packages as a newcomer meets them: builds .deb, .rpm and the static program, installs each in a clean root of its own, and takes
# a short tour there. For root, on Debian. All that is mounted or started lies in namespaces that end with the tour, whatever happens.
# usage: packages.sh [PROCESSOR ...]      (default: x86_64 aarch64; what is not of this machine runs in an emulator)
# $CLEAN_ROOT is a root that debootstrap made before, to be copied instead of making one.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" -eq 0 ] || { say "packages: left out, as only root makes roots"; exit 0; }
top=$(cd "$(dirname "$0")/../.." && pwd)
here=$(uname -m)
processors=("$@")
[ $# -gt 0 ] || processors=(x86_64 aarch64)
bash "$top/scripts/need.sh" debootstrap=debootstrap rpm=rpm lintian=lintian unshare=util-linux losetup=mount sfdisk=fdisk partx=util-linux file=file

let_go() {
    [ ! -e "$WORK/loops" ] || while read -r loop; do partx --delete "$loop" 2>/dev/null || true; losetup -d "$loop"; done <"$WORK/loops"
}

say "building for ${processors[*]}"
OUT=$WORK/out bash "$top/scripts/packages.sh" "${processors[@]}" | sed 's/^/  /'
deb() { ls "$WORK/out"/holdfast_*_"$1".deb; }
rpm_of() { ls "$WORK/out"/holdfast-*."$1".rpm; }

# within ROOT COMMAND...: runs it in the root, with /proc, /sys, /tmp and a /dev of its own, in namespaces that end with it.
within() {
    local root=$1
    shift
    mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/tmp"
    unshare --mount --pid --fork --kill-child --propagation private bash -euc '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount -t sysfs -o ro sys "$root/sys"
        mount -t tmpfs -o mode=755 dev "$root/dev"
        mount -t tmpfs tmp "$root/tmp"
        for node in null zero full random urandom tty fuse; do cp -a "/dev/$node" "$root/dev/$node"; done
        chmod 666 "$root/dev/fuse"
        for node in ${LOOPS_OF_TOUR:-}; do cp -a "$node" "$root$node"; done
        chroot "$root" "$@"' - "$root" "$@"
}

say "the static program in an empty root"
alone() {
    local root=$WORK/alone-$1 run
    mkdir -p "$root/in" "$root/mnt" "$root/dev"
    cp "$WORK/out/container/$2/holdfast" "$root/holdfast"
    echo "held fast" >"$root/in/notes"
    [ "$(ls "$root")" = "$(printf 'dev\nholdfast\nin\nmnt')" ] || fail "the root is not empty"
    run=(chroot "$root" /holdfast)
    "${run[@]}" --version | sed 's/^/  /'
    "${run[@]}" mkfs -q --size 64M /volume.img
    "${run[@]}" cp -r /in /volume.img:/tree
    [ "$("${run[@]}" cat /volume.img:/tree/notes)" = "held fast" ] || fail "another content came back"
    "${run[@]}" fsck -n -d /volume.img | sed 's/^/  /'
    [ "$1" = "$here" ] || return 0
    # With the device that a container is given, and nothing else: not even /proc.
    unshare --mount --pid --fork --kill-child --propagation private bash -euc '
        mount -t tmpfs dev "$1/dev"
        cp -a /dev/fuse "$1/dev/fuse"
        chroot "$1" /holdfast mount --foreground /volume.img /mnt 2>"$1.txt" &
        server=$!
        for _ in $(seq 200); do [ ! -e "$1/mnt/tree" ] || break; sleep 0.05; done
        echo "from a mount" >"$1/mnt/tree/more"
        sync "$1/mnt/tree/more"
        umount "$1/mnt"
        wait $server' - "$root" || { cat "$root.txt"; fail "a mount in a root that has the program and /dev/fuse alone"; }
    [ "$("${run[@]}" cat /volume.img:/tree/more)" = "from a mount" ] || fail "what was written through the mount is not there"
    say "  a mount there as well"
}
for processor in "${processors[@]}"; do
    case $processor in x86_64) name=amd64 ;; aarch64) name=arm64 ;; *) name=$processor ;; esac
    if [ "$processor" != "$here" ]; then
        bash "$top/scripts/need.sh" "qemu-$processor-static=qemu-user-static"
        file "$WORK/out/container/$name/holdfast" | grep -q 'statically linked' || fail "$processor: not static"
        # Without the kernel's register of emulators, the emulator runs it by name.
        [ -e "/proc/sys/fs/binfmt_misc/qemu-$processor" ] || {
            root=$WORK/emulated
            mkdir -p "$root"
            emulated=("qemu-$processor-static" "$WORK/out/container/$name/holdfast")
            "${emulated[@]}" --version | sed "s/^/  $processor: /"
            "${emulated[@]}" mkfs -q --size 64M "$root/volume.img"
            "${emulated[@]}" cp "$top/README.md" "$root/volume.img:/readme"
            "${emulated[@]}" cat "$root/volume.img:/readme" | cmp - "$top/README.md"
            "$HOLDFAST" fsck -n -d "$root/volume.img" | sed "s/^/  $processor: /"
            continue
        }
    fi
    alone "$processor" "$name"
done

say "a clean Debian root"
clean_root=$WORK/debian
if [ -n "${CLEAN_ROOT:-}" ]; then
    cp -a "$CLEAN_ROOT" "$clean_root"
else
    debootstrap --variant=minbase --include=man-db,systemd,udev,fuse3,file,bash-completion,util-linux,mount \
        bookworm "$clean_root" >"$WORK/debootstrap.txt" 2>&1 || { tail -n 20 "$WORK/debootstrap.txt"; fail "debootstrap"; }
fi
rm -f "$clean_root"/var/cache/apt/archives/*.deb

# tour KIND ROOT: what is installed, and what a newcomer does with it.
tour() {
    local root=$2
    cp "$top/scripts/prove/installed.sh" "$root/root/installed.sh"
    local disk=$root/root/disk.img parted=$root/root/parted.img loops
    truncate -s 64M "$disk"
    # A disk that was a volume once: the superblocks of that one stay before the first partition.
    "$HOLDFAST" mkfs -q --size 64M "$parted"
    echo , | sfdisk -q "$parted"
    losetup --find --show "$disk" >"$WORK/loops"
    losetup --find --show "$parted" >>"$WORK/loops"
    mapfile -t loops <"$WORK/loops"
    # Also where the kernel itself cannot read the table.
    partx --add "${loops[1]}" || say "  the kernel takes no partition of ${loops[1]}"
    LOOPS_OF_TOUR=${loops[*]} within "$root" /bin/bash /root/installed.sh "${loops[@]}" || fail "the tour behind the $1"
    let_go
    rm "$WORK/loops" "$disk" "$parted"
}
# What of a package is left in a root, beside lists, logs, caches and what lasts until the next boot.
left() {
    (cd "$1" && find . -xdev \( -path ./root -o -path ./run -o -path ./var/cache -o -path ./var/lib/dpkg -o -path ./var/lib/rpm -o -path ./var/log \) \
        -prune -o -name '*holdfast*' -print)
}

case $here in x86_64) name=amd64 ;; aarch64) name=arm64 ;; *) name=$here ;; esac
say "the .deb"
lintian --allow-root --fail-on error,warning --profile debian "$(deb "$name")" 2>&1 | sed 's/^/  lintian: /' || fail "lintian finds what must not be"
cp -a "$clean_root" "$WORK/deb"
cp "$(deb "$name")" "$WORK/deb/root/holdfast.deb"
within "$WORK/deb" dpkg -i /root/holdfast.deb | sed 's/^/  /'
tour .deb "$WORK/deb"
within "$WORK/deb" dpkg --purge holdfast | sed 's/^/  /'
[ -z "$(left "$WORK/deb")" ] || fail "the .deb leaves: $(left "$WORK/deb")"

say "the .rpm"
rpm -K --nosignature "$(rpm_of "$here")" | sed 's|^.*/|  |'
# The root has Debian's packages, of which rpm knows nothing: what the package wants beside itself is not asked. On Debian
# rpm says that another program should be used.
rpm --root "$clean_root" --nodeps --nosignature -i "$(rpm_of "$here")"
rpm --root "$clean_root" -V --nodeps holdfast || fail "the files are not those of the .rpm"
tour .rpm "$clean_root"
rpm --root "$clean_root" --nodeps -e holdfast
[ -z "$(left "$clean_root")" ] || fail "the .rpm leaves: $(left "$clean_root")"
say "packages: done"
