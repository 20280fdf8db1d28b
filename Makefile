# What people do with this repository. `make run` and `make test` install what they need on Debian.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
# Where systemd looks; with a PREFIX of which it knows nothing, name one that it knows.
UNITDIR ?= $(PREFIX)/lib/systemd/system
# The names under which mkfs(8), fsck(8), mount(8), umount(8) and fstab look for the program, always in /sbin. A mounted volume
# has the type that begins with `fuse.`: umount(8) and `mount -o remount` look for that.
LINKS := fsck.holdfast mkfs.holdfast mount.fuse.holdfast mount.holdfast umount.fuse.holdfast umount.holdfast
TARGET_DIR := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
PROFILED_PROGRAM := $(TARGET_DIR)/profiled/holdfast
STATIC_TARGET := $(shell uname -m)-unknown-linux-musl
STATIC_PROGRAM := $(TARGET_DIR)/$(STATIC_TARGET)/release/holdfast
PROGRAM := $(if $(filter 1,$(PROFILED)),$(PROFILED_PROGRAM),$(if $(filter 1,$(STATIC)),$(STATIC_PROGRAM),$(TARGET_DIR)/release/holdfast))

.PHONY: run stop test prove build dev static profiled docs golden install install-lib

# Builds, makes a volume, mounts it, and shows on real content what it does. Leaves it mounted.
run:
	bash scripts/tour.sh

# Unmounts what `make run` left.
stop:
	bash scripts/tour.sh stop

# Everything that must hold before a change lands. Ends with the test runner's own lines.
test:
	bash scripts/test.sh

# Real programs on a real mount: a kernel's source tree, forks of it, an agent's day, git, a build, SQLite and seven more under SIGKILL, a million
# files, a full disk, accidents beside the kernel's filesystems.
# Then what commits and fsyncs cost: instructions, frozen time, recovery, fio; the mechanisms with and without each.
prove: build dev
	bash scripts/need.sh sqlite3=sqlite3 git=git cc=build-essential bc=bc python3=python3 xz=xz-utils
	[ -r /usr/src/linux-source-6.1.tar.xz ] || apt-get install -y --no-install-recommends linux-source-6.1
	for proof in tree branches deletion forks agents pjdfstest git build sqlite killed million full accidents callgrind frozen recovery fio memory elastic latency metrics bindings; do HOLDFAST=$(abspath $(TARGET_DIR))/release/holdfast bash scripts/prove/$$proof.sh || exit 1; done
	[ "$$(id -u)" -ne 0 ] || HOLDFAST=$(abspath $(TARGET_DIR))/release/holdfast bash scripts/prove/killed.sh --limits --minutes 10
	$(abspath $(TARGET_DIR))/release/holdfast-dev bench mechanisms --mount
	[ "$$(id -u)" -ne 0 ] || bash scripts/need.sh losetup=mount mkfs.ext4=e2fsprogs mkfs.xfs=xfsprogs mkfs.btrfs=btrfs-progs fuse2fs=fuse2fs fuse-overlayfs=fuse-overlayfs bindfs=bindfs
	[ "$$(id -u)" -ne 0 ] || $(abspath $(TARGET_DIR))/release/holdfast-dev bench ops --program $(abspath $(TARGET_DIR))/release/holdfast
	[ "$$(id -u)" -ne 0 ] || $(abspath $(TARGET_DIR))/release/holdfast-dev bench peers --program $(abspath $(TARGET_DIR))/release/holdfast --workloads create-fsync,append

build:
	$(CARGO) build --release --locked -p holdfast-cli

# For those who work on it: the same commands, and bench, crashtest and dump. Not in one call of cargo with the other,
# which would then have what only this one needs.
dev:
	$(CARGO) build --release --locked -p holdfast-dev

# The program in one file of 5 MB that needs no other, not even a C library: for any Linux of this processor, rescue systems
# and containers. `make install STATIC=1` installs it.
static:
	! command -v rustup >/dev/null || rustup target add $(STATIC_TARGET)
	CARGO_PROFILE_RELEASE_STRIP=symbols $(CARGO) build --release --locked -p holdfast-cli --target $(STATIC_TARGET)

# The same program, laid out for what people do with files: a quarter of an hour. `make install PROFILED=1` installs it.
profiled: $(PROFILED_PROGRAM)

$(PROFILED_PROGRAM): scripts/profiled.sh Cargo.toml Cargo.lock $(shell find crates -path '*/src/*' -type f -o -name Cargo.toml)
	CARGO="$(CARGO)" bash scripts/profiled.sh

# The golden images of a format version that is in the making, anew, and then what fsck finds in the broken ones.
golden:
	UPDATE_GOLDEN=1 $(CARGO) test -p holdfast-sim --test golden
	UPDATE_GOLDEN=1 $(CARGO) test -p holdfast-sim --test broken
	$(CARGO) test -p holdfast-sim --test golden --test broken --test second_reader

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# For packagers: DESTDIR and PREFIX as usual.
install: $(if $(filter 1,$(PROFILED)),profiled,$(if $(filter 1,$(STATIC)),static,build))
	install -Dm755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/holdfast
	install -d $(DESTDIR)/sbin $(DESTDIR)$(PREFIX)/share/man/man1
	for name in $(LINKS); do ln -sf $(PREFIX)/bin/holdfast $(DESTDIR)/sbin/$$name || exit 1; done
	$(PROGRAM) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/man/man8
	$(PROGRAM) man --links $(DESTDIR)$(PREFIX)/share/man/man8
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(PROGRAM) completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/holdfast
	$(PROGRAM) completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_holdfast
	$(PROGRAM) completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/holdfast.fish
	install -d $(DESTDIR)$(UNITDIR)
	sed 's|@PREFIX@|$(PREFIX)|g' packaging/holdfast@.service.in >$(DESTDIR)$(UNITDIR)/holdfast@.service
	sed 's|@PREFIX@|$(PREFIX)|g' packaging/holdfast-prune@.service.in >$(DESTDIR)$(UNITDIR)/holdfast-prune@.service
	install -m644 packaging/holdfast-prune@.timer $(DESTDIR)$(UNITDIR)/holdfast-prune@.timer
	sed 's|@PREFIX@|$(PREFIX)|g' packaging/holdfast-scrub@.service.in >$(DESTDIR)$(UNITDIR)/holdfast-scrub@.service
	install -m644 packaging/holdfast-scrub@.timer $(DESTDIR)$(UNITDIR)/holdfast-scrub@.timer

# For programs in C: the library, its header, and what pkg-config asks for.
install-lib:
	$(CARGO) rustc --release --locked -p holdfast-capi --crate-type cdylib,staticlib
	install -Dm755 $(TARGET_DIR)/release/libholdfast_c.so $(DESTDIR)$(LIBDIR)/libholdfast.so.0
	ln -sf libholdfast.so.0 $(DESTDIR)$(LIBDIR)/libholdfast.so
	install -m644 $(TARGET_DIR)/release/libholdfast_c.a $(DESTDIR)$(LIBDIR)/libholdfast.a
	install -Dm644 crates/capi/include/holdfast.h $(DESTDIR)$(PREFIX)/include/holdfast.h
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	version=$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml); sed "s|@PREFIX@|$(PREFIX)|g; s|@LIBDIR@|$(LIBDIR)|g; s|@VERSION@|$$version|g" crates/capi/holdfast.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/holdfast.pc
