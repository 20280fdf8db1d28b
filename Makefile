# What people do with this repository. `make run` and `make test` install what they need on Debian.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# Where systemd, udev and mount(8) look, of which the first two know /usr and /usr/local. mount(8) and mkfs(8) look into /sbin
# alone, which is /usr/sbin today; with any other PREFIX `make install` says so.
UNITDIR ?= $(PREFIX)/lib/systemd/system
UDEVDIR ?= $(PREFIX)/lib/udev/rules.d
SBINDIR ?= $(if $(filter /usr/local,$(PREFIX)),/sbin,$(PREFIX)/sbin)
DOCDIR ?= $(PREFIX)/share/doc/holdfast
# The names under which mkfs(8), fsck(8), mount(8), umount(8) and fstab look for the program. A mounted volume
# has the type that begins with `fuse.`: umount(8) and `mount -o remount` look for that.
LINKS := fsck.holdfast mkfs.holdfast mount.fuse.holdfast mount.holdfast umount.fuse.holdfast umount.holdfast
# Beside `bin` a link is relative, so that a tree may be moved as a whole. Elsewhere a relative one would go astray where /sbin is
# itself a link.
LINK_TO := $(if $(filter $(PREFIX)/sbin,$(SBINDIR)),../bin,$(PREFIX)/bin)/holdfast
TARGET_DIR := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
PROFILED_PROGRAM := $(TARGET_DIR)/profiled/holdfast
# `make static STATIC_TARGET=aarch64-unknown-linux-musl` builds for another processor.
STATIC_TARGET ?= $(shell uname -m)-unknown-linux-musl
STATIC_PROGRAM := $(TARGET_DIR)/$(STATIC_TARGET)/release/holdfast
PROGRAM := $(if $(filter 1,$(PROFILED)),$(PROFILED_PROGRAM),$(if $(filter 1,$(STATIC)),$(STATIC_PROGRAM),$(TARGET_DIR)/release/holdfast))

BUILT_BY := $(if $(filter 1,$(PROFILED)),profiled,$(if $(filter 1,$(STATIC)),static,build))
# Of the same version, and for this machine: writes manual pages and completions where PROGRAM is for another one.
RUNS_HERE ?= $(PROGRAM)

.PHONY: run stop test prove build dev static profiled docs golden install uninstall packages

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
	for proof in tree branches deletion forks agents pjdfstest git build sqlite killed million full accidents callgrind frozen recovery fio memory elastic latency packages; do HOLDFAST=$(abspath $(TARGET_DIR))/release/holdfast bash scripts/prove/$$proof.sh || exit 1; done
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
# and containers. `make install STATIC=1` installs it. The linker is the one that comes with Rust, which knows all processors.
static:
	! command -v rustup >/dev/null || rustup target add $(STATIC_TARGET)
	CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_TARGET_$(shell echo $(STATIC_TARGET) | tr a-z- A-Z_)_LINKER=rust-lld \
		$(CARGO) build --release --locked -p holdfast-cli --target $(STATIC_TARGET)

# target/packages: .deb and .rpm of the static program, and what packaging/Containerfile wants.
packages:
	CARGO="$(CARGO)" bash scripts/packages.sh

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

# For packagers: DESTDIR and PREFIX as usual. Builds nothing, so that root needs no compiler, and leaves none of root's files in
# somebody's build.
install:
	@[ -x "$(PROGRAM)" ] || { echo "there is no $(PROGRAM) yet; run: make $(BUILT_BY)" >&2; exit 1; }
	@[ -z "$$(find crates/*/src Cargo.lock -newer "$(PROGRAM)" -print -quit)" ] || \
		echo "note: sources are newer than $(PROGRAM); to have them in it, run: make $(BUILT_BY)"
	install -d $(addprefix $(DESTDIR),$(SBINDIR) $(UNITDIR) $(UDEVDIR) $(DOCDIR) $(PREFIX)/share/man/man1 $(PREFIX)/share/man/man8 \
		$(PREFIX)/share/bash-completion/completions $(PREFIX)/share/zsh/site-functions $(PREFIX)/share/fish/vendor_completions.d)
	install -Dm755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/holdfast
	for name in $(LINKS); do ln -sf $(LINK_TO) $(DESTDIR)$(SBINDIR)/$$name || exit 1; done
	umask 022 && $(RUNS_HERE) man $(DESTDIR)$(PREFIX)/share/man/man1
	umask 022 && $(RUNS_HERE) man --links $(DESTDIR)$(PREFIX)/share/man/man8
	umask 022 && $(RUNS_HERE) completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/holdfast
	umask 022 && $(RUNS_HERE) completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_holdfast
	umask 022 && $(RUNS_HERE) completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/holdfast.fish
	umask 022 && for unit in packaging/*.service.in packaging/*.timer; do name=$$(basename $$unit .in); \
		sed 's|@PREFIX@|$(PREFIX)|g' $$unit >$(DESTDIR)$(UNITDIR)/$$name || exit 1; done
	umask 022 && sed 's|@PREFIX@|$(PREFIX)|g' packaging/61-holdfast.rules.in >$(DESTDIR)$(UDEVDIR)/61-holdfast.rules
	install -Dm644 packaging/holdfast.magic $(DESTDIR)$(PREFIX)/share/holdfast/holdfast.magic
	install -m644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE $(DESTDIR)$(DOCDIR)
	@case $(SBINDIR) in /sbin | /usr/sbin) ;; *) \
		echo "note: mount(8), mkfs(8) and fsck(8) look for holdfast in /sbin, not in $(SBINDIR); SBINDIR=/sbin puts its links there";; esac

# What `make install` with the same variables has put there, and no directory that others may use.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/holdfast $(addprefix $(DESTDIR)$(SBINDIR)/,$(LINKS))
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/holdfast.1 $(DESTDIR)$(PREFIX)/share/man/man1/holdfast-*.1
	rm -f $(patsubst %,$(DESTDIR)$(PREFIX)/share/man/man8/%.8,$(LINKS))
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions/holdfast zsh/site-functions/_holdfast \
		fish/vendor_completions.d/holdfast.fish)
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(patsubst %.in,%,$(notdir $(wildcard packaging/*.service.in packaging/*.timer))))
	rm -f $(DESTDIR)$(UDEVDIR)/61-holdfast.rules
	rm -rf $(DESTDIR)$(PREFIX)/share/holdfast $(DESTDIR)$(DOCDIR)
