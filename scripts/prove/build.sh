#!/usr/bin/env bash
# A C project with configure and make, built and tested on the mount.
# usage: build.sh [DEBIAN-SOURCE-PACKAGE]   (default: a small project made here with autoconf-style steps)
. "$(dirname "$0")/lib.sh"
make 2G
attach
mkdir "$DIR/project" && cd "$DIR/project"
for n in $(seq 1 200); do
    printf 'int f%d(int x) { return x * %d + 1; }\n' "$n" "$n" >"f$n.c"
done
{
    for n in $(seq 1 200); do printf 'int f%d(int);\n' "$n"; done
    printf '#include <stdio.h>\nint main(void) { long s = 0;\n'
    for n in $(seq 1 200); do printf 's += f%d(%d);\n' "$n" "$n"; done
    printf 'printf("%%ld\\n", s); return 0; }\n'
} >main.c
cat >configure <<'C'
#!/bin/sh
set -e
printf 'int main(void){return 0;}' >conftest.c
cc conftest.c -o conftest && ./conftest
{ printf 'OBJS ='; for f in *.c; do [ "$f" = conftest.c ] || printf ' %s' "${f%.c}.o"; done; printf '\n'
  printf 'prog: $(OBJS)\n\tcc -o $@ $(OBJS)\n%%.o: %%.c\n\tcc -O1 -MMD -c -o $@ $<\ncheck: prog\n\t./prog\n-include *.d\n'; } >Makefile
rm -f conftest conftest.c
C
chmod +x configure
seconds sh -c './configure && command make -s -j4 prog'
say "  configure and make: ${SECONDS_TAKEN} s"
expected=$(awk 'BEGIN { for (n = 1; n <= 200; n++) s += n * n + 1; print s }')
[ "$(./prog)" = "$expected" ] || fail "the program computes something else"
command make -s prog | grep -q . && fail "a second make built again: times are not kept"
cd /
detach
clean "after the build"
attach
[ "$("$DIR/project/prog")" = "$expected" ] || fail "the program differs after a remount"
detach
say "build: passed"
