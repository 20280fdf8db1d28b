#!/usr/bin/env bash
# Packages of the static program, for each processor that is named: .deb, .rpm, the program alone, and what
# packaging/Containerfile wants.
# usage: packages.sh [x86_64|aarch64 ...]     (default: that of this machine)
# They go to $OUT, target/packages if it is not set. $PACKAGER, "Name <address>", is their maintainer: whoever makes them.
# Twice the same source gives twice the same bytes, if $SOURCE_DATE_EPOCH is the same: that of the last commit if it is not set.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/need.sh dpkg-deb=dpkg rpmbuild=rpm make=make gzip=gzip python3=python3

target=${CARGO_TARGET_DIR:-$PWD/target}
out=${OUT:-$target/packages}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
# A version with a word behind it comes before the one without: `~` says so to both kinds of packages.
package_version=${version/-/\~}
: "${PACKAGER:=$(git config user.name 2>/dev/null || id -un) <$(git config user.email 2>/dev/null || echo "$(id -un)@$(uname -n)")>}"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}"
export SOURCE_DATE_EPOCH
here=$(uname -m)
processors=("$@")
[ $# -gt 0 ] || processors=("$here")

work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-packages.XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 022
mkdir -p "$out"

program_for() { echo "$target/$1-unknown-linux-musl/release/holdfast"; }
debian_name() { case $1 in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) echo "$1" ;; esac; }

# stage PROCESSOR: what `make install` puts below /usr, as packages have it.
stage() {
    local root=$work/$1/root
    make -s install STATIC=1 STATIC_TARGET="$1-unknown-linux-musl" RUNS_HERE="$(program_for "$here")" DESTDIR="$root" PREFIX=/usr
    python3 scripts/third_party.py "$1-unknown-linux-musl" >"$root/usr/share/doc/holdfast/THIRD-PARTY"
    gzip -9n "$root"/usr/share/man/man*/* "$root/usr/share/doc/holdfast/THIRD-PARTY"
    find "$root" -depth -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# Debian wants licences and changelog under names of its own.
deb() {
    local tree=$work/$1/deb name
    name=$(debian_name "$1")
    cp -a "$work/$1/root" "$tree"
    local doc=$tree/usr/share/doc/holdfast
    rm "$doc"/LICENSE-*
    awk '/@MIT@/ { while ((getline line < "LICENSE-MIT") > 0) print (line == "" ? " ." : " " line); next } { print }' \
        packaging/copyright.in >"$doc/copyright"
    {
        printf 'holdfast (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n' "$package_version"
        printf ' -- %s  %s\n' "$PACKAGER" "$(date -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$doc/changelog.Debian.gz"
    mv "$doc/CHANGELOG.md" "$doc/changelog"
    gzip -9n "$doc/changelog" "$doc/README.md"
    install -Dm644 packaging/lintian-overrides "$tree/usr/share/lintian/overrides/holdfast"
    mkdir "$tree/DEBIAN"
    for script in postinst postrm; do install -m755 packaging/refresh.sh "$tree/DEBIAN/$script"; done
    (cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    sed -e "s|@VERSION@|$package_version|" -e "s|@ARCHITECTURE@|$name|" -e "s|@PACKAGER@|$PACKAGER|" \
        -e "s|@KIB@|$(du -sk --apparent-size "$tree/usr" | cut -f 1)|" packaging/control.in >"$tree/DEBIAN/control"
    find "$tree" -depth -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/holdfast_$package_version-1_$name.deb" >/dev/null
}

rpm_package() {
    local root=$work/$1/root list=$work/$1/files
    # Directories of its own, then files; what documents are, and licences.
    (cd "$root" && find . -type d \( -path '*/share/holdfast' -o -path '*/share/doc/holdfast' \) -printf '%%dir /%P\n'
        find . ! -type d -printf '/%P\n' | LC_ALL=C sort | sed -e 's|^.*/LICENSE-|%license &|' -e 's|^.*/doc/|%doc &|') >"$list"
    rpmbuild -bb --quiet --target "$1-linux" --define "_topdir $work/$1/rpmbuild" --define "_rpmdir $work/$1" \
        --define "_rpmfilename holdfast.rpm" --define "version $package_version" --define "staged $root" --define "list $list" --define "refresh $PWD/packaging/refresh.sh" \
        --define "packager $PACKAGER" --define "_buildhost localhost" --define "_binary_payload w6.xzdio" packaging/holdfast.spec \
        >"$work/$1/rpmbuild.txt" 2>&1 ||
        { cat "$work/$1/rpmbuild.txt" >&2; exit 1; }
    mv "$work/$1/holdfast.rpm" "$out/holdfast-$package_version-1.$1.rpm"
}

# The pages of every package are written by the program of this machine.
for processor in "$here" "${processors[@]}"; do
    [ "$processor" = "${built:-}" ] || make -s static STATIC_TARGET="$processor-unknown-linux-musl"
    built=$processor
done
for processor in "${processors[@]}"; do
    stage "$processor"
    deb "$processor"
    rpm_package "$processor"
    install -Dm755 "$(program_for "$processor")" "$out/holdfast-$version-$processor-linux"
    install -Dm755 "$(program_for "$processor")" "$out/container/$(debian_name "$processor")/holdfast"
done
(cd "$out" && ls -l ./*"$package_version"*)
