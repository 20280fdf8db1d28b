# What people do with this repository. `make run` and `make test` install what they need on Debian.

CARGO ?= cargo
RUSTC ?= rustc
PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
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
# A command of the shell: is $1 such a link to this program? An older one may be written another way, but leads to the same file.
OUR_LINK = { [ -L "$$1" ] && { [ "$$(readlink "$$1")" = "$(LINK_TO)" ] || [ "$$1" -ef "$(DESTDIR)$(PREFIX)/bin/holdfast" ]; }; }
# The dashboard, where the source has one.
SHARED := packaging/holdfast.magic $(wildcard packaging/grafana-dashboard.json)
DOCUMENTS := README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE
TARGET_DIR := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
PROFILED_PROGRAM := $(TARGET_DIR)/profiled/holdfast
# `make static STATIC_TARGET=aarch64-unknown-linux-musl` builds for another processor.
STATIC_TARGET ?= $(shell uname -m)-unknown-linux-musl
# rustc finds it by this name. Rust of a distribution may lack it: then the system's linker has to do.
STATIC_LINKER ?= $(if $(wildcard $(shell $(RUSTC) --print sysroot)/lib/rustlib/*/bin/rust-lld),rust-lld)
STATIC_PROGRAM := $(TARGET_DIR)/$(STATIC_TARGET)/release/holdfast
PROGRAM := $(if $(filter 1,$(PROFILED)),$(PROFILED_PROGRAM),$(if $(filter 1,$(STATIC)),$(STATIC_PROGRAM),$(TARGET_DIR)/release/holdfast))

BUILT_BY := $(if $(filter 1,$(PROFILED)),profiled,$(if $(filter 1,$(STATIC)),static,build))
# Of the same version, and for this machine: writes manual pages and completions where PROGRAM is for another one.
RUNS_HERE ?= $(PROGRAM)

.PHONY: run stop test prove build dev locks static profiled docs book golden install install-lib uninstall where packages

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
	for proof in tree branches deletion forks agents pjdfstest git build sqlite killed supervised million full accidents callgrind frozen recovery fio memory elastic latency metrics bindings packages; do HOLDFAST=$(abspath $(TARGET_DIR))/release/holdfast bash scripts/prove/$$proof.sh || exit 1; done
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

# The same with locks that count how they are used, for `holdfast-dev bench locks`: target/locks/release/holdfast-dev.
locks:
	$(CARGO) build --release --locked -p holdfast-dev --features locks --target-dir $(TARGET_DIR)/locks

# The program in one file that needs no other, not even a C library: for any Linux of this processor, rescue systems
# and containers. `make install STATIC=1` installs it. The linker is the one that comes with Rust, if it does: it knows all processors.
static:
	! command -v rustup >/dev/null || rustup target add $(STATIC_TARGET)
	CARGO_PROFILE_RELEASE_STRIP=symbols \
		$(if $(STATIC_LINKER),CARGO_TARGET_$(shell echo $(STATIC_TARGET) | tr a-z- A-Z_)_LINKER=$(STATIC_LINKER)) \
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
	UPDATE_GOLDEN=1 $(CARGO) test -p holdfast-sim --test all golden::
	UPDATE_GOLDEN=1 $(CARGO) test -p holdfast-sim --test all broken::
	$(CARGO) test -p holdfast-sim --test all -- golden:: broken:: second_reader::

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# The documents as a book, in target/book/html. The first time it builds mdBook.
book:
	bash scripts/book.sh

# dash and zsh leave `~` in `PREFIX=~/.local` as it is, and an empty directory would be the root's.
where:
	@for path in "$(PREFIX)" "$(SBINDIR)" "$(UNITDIR)" "$(UDEVDIR)" "$(DOCDIR)"; do case $$path in /*) ;; *) \
		echo "PREFIX, SBINDIR, UNITDIR, UDEVDIR and DOCDIR must begin with a slash, which '$$path' does not; write \$$HOME for ~" >&2; \
		exit 1;; esac; done

# For packagers: DESTDIR and PREFIX as usual. Builds nothing, so that root needs no compiler, and leaves none of root's files in
# somebody's build.
install: where
	@[ -x "$(PROGRAM)" ] || { echo "there is no $(PROGRAM) yet; run: make $(BUILT_BY)," \
		"or name where it was built, which sudo does not pass on: make install CARGO_TARGET_DIR=DIRECTORY" >&2; exit 1; }
	@[ -z "$$(find crates/*/src Cargo.lock -newer "$(PROGRAM)" -print -quit)" ] || \
		echo "note: sources are newer than $(PROGRAM); to have them in it, run: make $(BUILT_BY)"
	@[ "$(FORCE)" = 1 ] || for name in $(LINKS); do set -- "$(DESTDIR)$(SBINDIR)/$$name"; \
		if [ ! -e "$$1" ] && [ ! -L "$$1" ] || $(OUR_LINK); then continue; fi; \
		echo "$$1 is not a link to $(PREFIX)/bin/holdfast: remove the package that it belongs to, choose another SBINDIR," \
			"or replace it with FORCE=1" >&2; exit 1; done
	install -d $(addprefix $(DESTDIR),$(SBINDIR) $(UNITDIR) $(UDEVDIR) $(DOCDIR) $(PREFIX)/share/man/man1 $(PREFIX)/share/man/man8 \
		$(PREFIX)/share/bash-completion/completions $(PREFIX)/share/zsh/site-functions $(PREFIX)/share/fish/vendor_completions.d)
	install -Dm755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/holdfast
	for name in $(LINKS); do ln -sfT $(LINK_TO) $(DESTDIR)$(SBINDIR)/$$name || exit 1; done
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/holdfast-*.1
	umask 022 && $(RUNS_HERE) man $(DESTDIR)$(PREFIX)/share/man/man1
	umask 022 && $(RUNS_HERE) man --links $(DESTDIR)$(PREFIX)/share/man/man8
	umask 022 && $(RUNS_HERE) completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/holdfast
	umask 022 && $(RUNS_HERE) completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_holdfast
	umask 022 && $(RUNS_HERE) completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/holdfast.fish
	umask 022 && for unit in packaging/*.service.in packaging/*.timer; do name=$$(basename $$unit .in); \
		sed 's|@PREFIX@|$(PREFIX)|g' $$unit >$(DESTDIR)$(UNITDIR)/$$name || exit 1; done
	umask 022 && sed 's|@PREFIX@|$(PREFIX)|g' packaging/61-holdfast.rules.in >$(DESTDIR)$(UDEVDIR)/61-holdfast.rules
	install -d $(DESTDIR)$(PREFIX)/share/holdfast
	install -m644 $(SHARED) $(DESTDIR)$(PREFIX)/share/holdfast
	install -m644 $(DOCUMENTS) $(DESTDIR)$(DOCDIR)
	@case $(SBINDIR) in /sbin | /usr/sbin) ;; *) \
		echo "note: mount(8), mkfs(8) and fsck(8) look for holdfast in /sbin, not in $(SBINDIR); SBINDIR=/sbin puts its links there";; esac
	@for path in $(UNITDIR) $(UDEVDIR); do case $$path in /usr/lib/* | /usr/local/lib/* | /lib/* | /etc/*) ;; *) \
		echo "note: neither systemd nor udev looks into $$path; UNITDIR=/etc/systemd/system and UDEVDIR=/etc/udev/rules.d do";; esac; done

# What `make install` with the same variables has put there, and no directory, link or file of others. The links go first: they
# are told by where they lead.
uninstall: where
	@for name in $(LINKS); do set -- "$(DESTDIR)$(SBINDIR)/$$name"; \
		if $(OUR_LINK); then rm -f "$$1" || exit 1; \
		elif [ -e "$$1" ] || [ -L "$$1" ]; then echo "note: $$1 stays: it is not a link to $(PREFIX)/bin/holdfast"; fi; done
	rm -f $(DESTDIR)$(PREFIX)/bin/holdfast
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/holdfast.1 $(DESTDIR)$(PREFIX)/share/man/man1/holdfast-*.1
	rm -f $(patsubst %,$(DESTDIR)$(PREFIX)/share/man/man8/%.8,$(LINKS))
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions/holdfast zsh/site-functions/_holdfast \
		fish/vendor_completions.d/holdfast.fish)
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(patsubst %.in,%,$(notdir $(wildcard packaging/*.service.in packaging/*.timer))))
	rm -f $(DESTDIR)$(UDEVDIR)/61-holdfast.rules
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/holdfast/,$(notdir $(SHARED))) $(addprefix $(DESTDIR)$(DOCDIR)/,$(DOCUMENTS))
	for path in $(DESTDIR)$(PREFIX)/share/holdfast $(DESTDIR)$(DOCDIR); do \
		[ ! -d $$path ] || rmdir --ignore-fail-on-non-empty $$path || exit 1; done

# For programs in C: the library, its header, and what pkg-config asks for.
install-lib:
	$(CARGO) rustc --release --locked -p holdfast-capi --crate-type cdylib,staticlib
	install -Dm755 $(TARGET_DIR)/release/libholdfast_c.so $(DESTDIR)$(LIBDIR)/libholdfast.so.0
	ln -sf libholdfast.so.0 $(DESTDIR)$(LIBDIR)/libholdfast.so
	install -m644 $(TARGET_DIR)/release/libholdfast_c.a $(DESTDIR)$(LIBDIR)/libholdfast.a
	install -Dm644 crates/capi/include/holdfast.h $(DESTDIR)$(PREFIX)/include/holdfast.h
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	version=$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml); sed "s|@PREFIX@|$(PREFIX)|g; s|@LIBDIR@|$(LIBDIR)|g; s|@VERSION@|$$version|g" crates/capi/holdfast.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/holdfast.pc
