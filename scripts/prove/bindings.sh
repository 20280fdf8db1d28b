#!/usr/bin/env bash
# The library for other languages: C programs under gcc, clang and valgrind, an installation that pkg-config finds, the Python
# package as a wheel in a fresh environment, and the Node.js package where there is a node, each with what POSIX says and with a SIGKILL.
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/../.."
bash scripts/need.sh cc=build-essential clang=clang valgrind=valgrind pkg-config=pkg-config python3=python3
CARGO=${CARGO:-cargo}

"$CARGO" test --locked -q -p holdfast-capi 2>"$WORK/capi.txt" >&2 || { cat "$WORK/capi.txt"; fail "the C library"; }
! grep SKIPPED "$WORK/capi.txt" || fail "something was left out"
say "  C: gcc, clang, valgrind, SIGKILL"

# `make` is a function here.
command make -s install-lib DESTDIR="$WORK/root" PREFIX=/usr CARGO="$CARGO"
export PKG_CONFIG_PATH=$WORK/root/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$WORK/root
for static in "" yes; do
    flags=$(pkg-config --cflags --libs holdfast)
    [ -z "$static" ] || flags="$(pkg-config --cflags holdfast) $WORK/root/usr/lib/libholdfast.a $(pkg-config --static --libs-only-other holdfast) -lpthread -lm -ldl"
    # shellcheck disable=SC2086
    cc crates/capi/examples/quickstart.c -o "$WORK/quickstart$static" $flags
    LD_LIBRARY_PATH=$WORK/root/usr/lib "$WORK/quickstart$static" "$WORK/c$static.img" >/dev/null
    IMAGE=$WORK/c$static.img clean "after a C program${static:+, linked statically}"
done

python3 -m venv "$WORK/venv"
"$WORK/venv/bin/pip" -q install "maturin>=1.9,<2" "pytest>=8" "fsspec>=2024.2"
(cd bindings/python && "$CARGO" test --locked -q 2>"$WORK/python.txt" >&2) || { cat "$WORK/python.txt"; fail "the Rust side of the Python package"; }
(cd bindings/python && PATH="$WORK/venv/bin:$PATH" maturin build -q --release --locked --out "$WORK/wheels")
"$WORK/venv/bin/pip" -q install --no-deps "$WORK"/wheels/holdfast-*-abi3-*.whl
HOLDFAST=$HOLDFAST "$WORK/venv/bin/python" -m pytest -q -p no:cacheprovider bindings/python/tests --rootdir "$WORK" | tail -1
"$WORK/venv/bin/python" scripts/prove/bindings.py docs/BINDINGS.md "$WORK"
for image in "$WORK"/doc-*.img; do IMAGE=$image clean "after an example of the document"; done

if command -v node >/dev/null && node -e 'process.exit(Symbol.asyncDispose ? 0 : 1)'; then
    (cd bindings/node && "$CARGO" test --locked -q 2>"$WORK/node.txt" >&2) || { cat "$WORK/node.txt"; fail "the Rust side of the Node.js package"; }
    (cd bindings/node && CARGO=$CARGO node build.js 2>"$WORK/node.txt" >&2) || { cat "$WORK/node.txt"; fail "the build of the Node.js package"; }
    HOLDFAST=$HOLDFAST TMPDIR=$WORK node --test bindings/node/test/*.test.js >"$WORK/node.txt" 2>&1 || { cat "$WORK/node.txt"; fail "the Node.js package"; }
    say "  Node.js: $(sed -n 's/^[^a-z]*pass //p' "$WORK/node.txt") tests, SIGKILL among them"
else
    say "  Node.js: left out, there is no node of 20.5 or later here"
fi

# A volume that is mounted is reached through its mount.
make 64M
attach
# shellcheck disable=SC2046
cc crates/capi/tests/mounted.c -o "$WORK/mounted" $(pkg-config --cflags --libs holdfast)
LD_LIBRARY_PATH=$WORK/root/usr/lib "$WORK/mounted" "$IMAGE" "$DIR" || fail "C on a mounted volume"
grep -q "through the mount" "$DIR/from-c" || fail "what C wrote is not in the mount"
detach
say "bindings: passed"
