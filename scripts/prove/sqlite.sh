#!/usr/bin/env bash
# SQLite under inserts while the daemon is killed: integrity_check is ok and every committed row is there.
# synchronous=EXTRA, because with FULL a rollback journal's unlink, which is the commit, is not followed by an
# fsync of the directory, so that SQLite itself promises nothing for the last transaction.
# usage: sqlite.sh [ROUNDS]
. "$(dirname "$0")/lib.sh"
ROUNDS=${1:-5}
make 1G
for mode in wal delete; do
    rows=0
    attach
    python3 - "$DIR/$mode.db" "$mode" <<'P'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(f"pragma journal_mode={sys.argv[2]}")
db.execute("create table t(id integer primary key, filler blob)")
db.close()
P
    "$HOLDFAST" sync "$DIR"
    for round in $(seq 1 "$ROUNDS"); do
        # The inserter says a row only after its commit, with synchronous=EXTRA, has returned.
        python3 -u - "$DIR/$mode.db" >"$WORK/acknowledged" 2>/dev/null <<'P' &
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
db.execute("pragma synchronous=extra")
n = db.execute("select coalesce(max(id), 0) from t").fetchone()[0]
while True:
    n += 1
    db.execute("begin"); db.execute("insert into t values(?, ?)", (n, os.urandom(3000))); db.execute("commit")
    # SQLite takes a directory that it cannot open for one that needs no fsync. So when the daemon dies just
    # between the unlink and that open, commit says yes although nobody was asked. An answer from the daemon
    # after the commit proves that it lived, and so that the fsync in between was its own.
    os.getxattr(os.path.dirname(sys.argv[1]), "holdfast.stats")
    print(n)
P
        writer=$!
        sleep "1.$((RANDOM % 9))"
        crash
        wait "$writer" || true
        acknowledged=$(tail -n 1 "$WORK/acknowledged")
        attach
        found=$(python3 - "$DIR/$mode.db" <<'P'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
count, top = db.execute("select count(*), coalesce(max(id), 0) from t").fetchone()
assert count == top, (count, top)
print(top)
P
        ) || fail "$mode round $round: integrity_check"
        [ "$found" -ge "${acknowledged:-0}" ] || fail "$mode round $round: $acknowledged rows were acknowledged, $found are there"
        [ "$found" -ge "$rows" ] || fail "$mode round $round: rows of an earlier round are gone"
        rows=$found
        say "  $mode round $round: acknowledged ${acknowledged:-none}, found $found"
    done
    detach
    clean "after $ROUNDS crashes under $mode"
done
say "sqlite: passed"
