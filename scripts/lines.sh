#!/usr/bin/env bash
# Lines of product code by crate: Rust in crates/*/src and in bindings, without tests (tests.rs, *_tests.rs, tests/, and
# modules behind cfg(test)); and the files that are longer than CONTRIBUTING allows.
# usage: scripts/lines.sh [COMMIT, default: what is there now]
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -gt 0 ]; then
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    git archive "$1" crates bindings | tar -x -C "$tree"
    cd "$tree"
fi
find crates/*/src bindings -name '*.rs' -not -path '*/tests/*' -not -path '*/target/*' -not -name tests.rs -not -name '*_tests.rs' |
    sort | xargs awk '
        FNR == 1 { inside = 0; held = 0 }
        inside { inside = $0 != "}"; next }
        held { held = 0; if (/^(pub(\(.*\))? )?mod .*;$/) next; if (/^(pub(\(.*\))? )?mod .*\{$/) { inside = 1; next } add(1) }
        $0 == "#[cfg(test)]" { held = 1; next }
        { add(1) }
        function add(n) { split(FILENAME, part, "/"); crate[part[1] "/" part[2]] += n; file[FILENAME] += n; sum += n }
        END {
            for (name in crate) printf "%7d %s\n", crate[name], name | "sort -rn"
            close("sort -rn")
            printf "%7d in all\n", sum
            for (name in file) if (file[name] > 450) printf "%7d %s\n", file[name], name | "sort -rn"
        }'
