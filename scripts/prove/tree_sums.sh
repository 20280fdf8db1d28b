# For proofs that source lib.sh: the checksums of a tree of files, from a copy on the host ($PLAIN), so that what a volume says is
# never judged by what it said. $WORK/files: the names. $WORK/sums: a line for each, with its checksum, in the same order.

# One line for all files below a directory: their names and checksums.
sum_of() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64); }

first_sums() {
    (cd "$PLAIN" && find . -type f | LC_ALL=C sort) >"$WORK/files"
    (cd "$PLAIN" && tr '\n' '\0' <"$WORK/files" | xargs -0 sha256sum) >"$WORK/sums"
}

# renew_sums NAMES: the files that NAMES lists have changed.
renew_sums() {
    (cd "$PLAIN" && tr '\n' '\0' <"$1" | xargs -0 sha256sum) >"$WORK/new-sums"
    awk '{ name = substr($0, 67) } NR == FNR { new[name] = $0; next } { print name in new ? new[name] : $0 }' \
        "$WORK/new-sums" "$WORK/sums" >"$WORK/next-sums"
    mv "$WORK/next-sums" "$WORK/sums"
}

# Until deletions have given back all space.
settled() {
    local left
    while left=$("$HOLDFAST" stats --json "$DIR" | grep -o '"deletions_left": *[0-9]*' | grep -o '[0-9]*$') && [ "$left" -ne 0 ]; do sleep 0.2; done
    "$HOLDFAST" sync "$DIR"
}
