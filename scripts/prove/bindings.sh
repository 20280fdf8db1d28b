#!/usr/bin/env bash
# The library for other languages: C programs under gcc, clang and valgrind, an installation that pkg-config finds, and the Python
# package as a wheel in a fresh environment, each with what POSIX says and with a SIGKILL.
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
"$WORK/venv/bin/python" -m pytest -q -p no:cacheprovider bindings/python/tests --rootdir "$WORK" | tail -1
"$WORK/venv/bin/python" scripts/prove/bindings.py docs/BINDINGS.md "$WORK"
for image in "$WORK"/doc-*.img; do IMAGE=$image clean "after an example of the document"; done

# A volume that is mounted is refused, and the refusal says where its files are.
make 64M
attach
said=$("$WORK/venv/bin/python" -c 'import holdfast, sys; holdfast.Volume.open(sys.argv[1])' "$IMAGE" 2>&1 || true)
grep -q "mounted at $DIR: use its files there" <<<"$said" || fail "the refusal says: $said"
detach
say "bindings: passed"
