#!/bin/bash
# The tour of scripts/prove/packages.sh, inside a root in which Holdfast was installed from a package.
# usage: installed.sh BLOCK_DEVICE PARTED     (of 64 MiB or more, overwritten; PARTED was a volume and has one partition by now)
set -euo pipefail
device=$1
parted=$2
say() { printf '  %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
cd /root

say "$(holdfast --version)"
if grep -rl '@[A-Z]*@' /usr/lib/systemd/system/holdfast* /usr/lib/udev/rules.d/*holdfast*; then fail "a place that was not filled in"; fi

links=0
for page in /usr/share/man/man8/*.holdfast.8*; do
    name=$(basename "$page")
    name=${name%.8*}
    [ "$(readlink -f "/sbin/$name")" = /usr/bin/holdfast ] || fail "there is no link for the page of $name"
    man -w "$name" >/dev/null
    "/sbin/$name" --help >/dev/null
    links=$((links + 1))
done
[ "$links" -ge 6 ] || fail "only $links pages of links"
for page in /usr/share/man/man1/holdfast*; do man --warnings -E UTF-8 -l "$page" >/dev/null 2>page.txt && [ ! -s page.txt ] || fail "$page: $(cat page.txt)"; done
say "$links links, each with its page; $(find /usr/share/man/man1 -name 'holdfast*' | wc -l) pages of commands, all well formed"
bash -c '. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/holdfast
    COMP_WORDS=(holdfast snap) COMP_CWORD=1 COMP_LINE="holdfast snap" COMP_POINT=13
    _holdfast holdfast snap holdfast; [ "${COMPREPLY[*]}" = snapshot ]' || fail "bash completes nothing"
[ -s /usr/share/zsh/site-functions/_holdfast ] && [ -s /usr/share/fish/vendor_completions.d/holdfast.fish ] || fail "no completions for zsh and fish"

mkdir -p mnt
mkfs.holdfast -q --size 64M work.img
mount -t holdfast work.img mnt
[ "$(findmnt -no FSTYPE mnt)" = fuse.holdfast ] || fail "mount(8) returned, and there is no mount"
echo "held fast" >mnt/notes
sync mnt/notes
holdfast explain mnt/notes | sed 's/^/    /'
holdfast snapshot create mnt monday >/dev/null
echo "changed" >mnt/notes
umount mnt
fsck.holdfast -n work.img | sed 's/^/  /'
[ "$(holdfast cat work.img@monday:/notes) $(holdfast cat work.img:/notes)" = "held fast changed" ] || fail "another content came back"
say "mkfs(8), mount(8), fsync, a snapshot, umount(8), fsck(8)"

echo "/root/work.img /root/mnt holdfast noauto,ro 0 0" >>/etc/fstab
mount mnt
[ "$(cat mnt/notes)" = changed ] || fail "the line of fstab mounts something else"
if touch mnt/x 2>/dev/null; then fail "a read-only mount was written to"; fi
umount mnt
say "fstab"

user=(setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp/user XDG_RUNTIME_DIR=/tmp/user)
mkdir -p /tmp/user/mnt
chown -R 65534:65534 /tmp/user
"${user[@]}" holdfast mkfs -q --size 64M /tmp/user/v.img
"${user[@]}" holdfast mount /tmp/user/v.img /tmp/user/mnt
"${user[@]}" sh -c 'echo mine >/tmp/user/mnt/file'
"${user[@]}" holdfast umount /tmp/user/mnt
[ "$("${user[@]}" holdfast cat /tmp/user/v.img:/file)" = mine ] || fail "a user's volume lost its file"
say "a mount of an ordinary user"

mkdir -p /etc/systemd/system/holdfast@data.service.d
printf '[Unit]\nRequiresMountsFor=/root/work.img /root/mnt\n[Service]\nEnvironment=VOLUME=/root/work.img DIR=/root/mnt\n' \
    >/etc/systemd/system/holdfast@data.service.d/volume.conf
for unit in holdfast@data.service holdfast-snapshot@data.service holdfast-snapshot@data.timer holdfast-prune@data.service holdfast-prune@data.timer holdfast-scrub@data.service holdfast-scrub@data.timer; do
    systemd-analyze verify "$unit" 2>units.txt || { cat units.txt; fail "$unit"; }
    if grep -i holdfast units.txt; then fail "$unit is not understood"; fi
done
rm -r /etc/systemd/system/holdfast@data.service.d
say "systemd understands the units"

# asks_udev DEVICE: what udev would keep of it, in udev.txt.
asks_udev() { udevadm test --action=change "/sys/class/block/${1#/dev/}" >udev.txt 2>&1 || { cat udev.txt; fail "udevadm test"; }; }
uuid=0d5d3cc5-5c3a-4b68-9a1f-5c6f0c7a1b2d
mkfs.holdfast -q -U "$uuid" -L 'my data' "$device"
asks_udev "$device"
for line in ID_FS_TYPE=holdfast ID_FS_USAGE=filesystem "ID_FS_UUID=$uuid" ID_FS_LABEL=my_data 'ID_FS_LABEL_ENC=my\x20data'; do
    grep -qxF "$line" udev.txt || { cat udev.txt; fail "udev does not know $line"; }
done
for link in "by-uuid/$uuid" 'by-label/my\x20data'; do
    grep -F DEVLINKS= udev.txt | grep -qF "/dev/disk/$link" || { cat udev.txt; fail "udev makes no link $link"; }
done
# Some versions of `udevadm test` have made the link by now, through which mount(8) finds a label.
mkdir -p /dev/disk/by-label
[ -e '/dev/disk/by-label/my\x20data' ] || ln -s "$device" '/dev/disk/by-label/my\x20data'
mount -t holdfast LABEL='my data' mnt
umount mnt
say "udev: type, id, label and links of $device, and mount(8) by its label"
holdfast info --udev "$parted" | grep -qx ID_FS_TYPE=holdfast || fail "$parted has nothing left of the volume that it was"
asks_udev "$parted"
grep -qx ID_PART_TABLE_TYPE=dos udev.txt || { cat udev.txt; fail "udev sees no partitions on $parted"; }
if grep -q '^ID_FS_TYPE=' udev.txt; then cat udev.txt; fail "udev takes a disk with partitions for the volume that it was"; fi
say "udev: not a disk with partitions that was a volume once"
partition=${parted}p1
if [ -e "/sys/class/block/${partition#/dev/}" ]; then
    IFS=: read -r major minor <"/sys/class/block/${partition#/dev/}/dev"
    [ -e "$partition" ] || mknod "$partition" b "$major" "$minor"
    mkfs.holdfast -q -L part "$partition"
    # Some versions of `udevadm test` do not keep what they find. A partition has its disk's properties from there.
    mkdir -p /run/udev/data
    echo E:ID_PART_TABLE_TYPE=dos >"/run/udev/data/b$(cat "/sys/class/block/${parted#/dev/}/dev")"
    asks_udev "$partition"
    for line in ID_PART_TABLE_TYPE=dos ID_FS_TYPE=holdfast ID_FS_LABEL=part; do
        grep -qxF "$line" udev.txt || { cat udev.txt; fail "udev does not know $line of a partition"; }
    done
    say "udev: a partition"
else
    say "udev: a partition is left out: this kernel finds none on $parted"
fi
file -m /usr/share/holdfast/holdfast.magic work.img | grep -q 'Holdfast volume, format' || fail "file(1) does not know the volume"
say "$(file -m /usr/share/holdfast/holdfast.magic -s "$device")"
