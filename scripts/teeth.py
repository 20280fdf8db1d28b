"""Breaks the fsync log on purpose, one way after the other, in a copy of the sources, and sees that the tests find each out.
A breakage that no test notices is printed as MISSED, and the program fails. Takes a compilation for each.
usage: teeth.py [WORD...]   only breakages whose description has one of the words"""
import os, re, shutil, signal, subprocess, sys, tempfile

STORE, POSIX = "crates/store/src/", "crates/posix/src/"

# What is broken: the words, the file, what stands there exactly once, what stands there instead.
BREAKAGES = [
    ("an fsync answers without its flush", STORE + "log/mod.rs",
     "let _durable = self.device.flush()?;\n        receipt.flushes += 1;", "receipt.flushes += 1;"),
    ("an fsync answers before its batch is written", STORE + "log/mod.rs",
     "            pending.take()\n        };",
     "            self.durable.store(self.lsn.load(Ordering::Acquire), Ordering::Release);\n            pending.take()\n        };"),
    ("blocks that the log names are not pinned in a recovery", STORE + "log/recover.rs",
     "self.pin(superblock, &logged.batches)?;", ""),
    ("the ring is free before the commit is durable", STORE + "log/ring.rs",
     "self.ring.len - (self.place.head - tail.load(Ordering::Acquire))",
     "{ let _ = tail; self.ring.len }"),
    ("data of the log does not go to its place with a commit", STORE + "commit.rs",
     "self.write_owed(&self.owed.frozen())?;", ""),
    ("data of the log does not go to its place in a recovery", STORE + "checkpoint.rs",
     "self.write_owed(&self.owed.frozen())", "self.write_owed(&Default::default())"),
    ("a batch reaches over the freeze of a commit", STORE + "log/pending.rs",
     "self.frozen = Some(self.generations.len());\n        self.begin();",
     "self.frozen = Some(self.generations.len() - 1);"),
    ("what a commit does not contain is dropped with it", STORE + "log/pending.rs",
     "self.generations.drain(..frozen);", "let _ = frozen; self.begin(); let all = self.generations.len() - 1; self.generations.drain(..all);"),
    ("what a commit contains is logged behind it again", STORE + "log/pending.rs",
     "self.generations.drain(..frozen);", "let _ = frozen;"),
    ("what is frozen for a commit is not logged", STORE + "log/pending.rs",
     "let taken = self.generations.len() - 1;",
     "let frozen = self.frozen.unwrap_or(0); self.generations.drain(..frozen);\n        let taken = self.generations.len() - 1;"),
    ("a key keeps its first value", STORE + "log/pending.rs",
     "                entry.value = value;", "                let _ = value;"),
    ("data of the last flush is not verified", STORE + "log/replay.rs",
     "reader.verify(&mut logged)?;", ""),
    ("data that came with the last flush is not written again", STORE + "log/recover.rs",
     "for (block, bytes) in &logged.data {", "for (block, bytes) in logged.data.iter().take(0) {"),
    ("a batch that was given up may come back", STORE + "log/recover.rs",
     "mark.sum = crc64(&mark.sum.to_le_bytes());", "mark.sum = mark.sum.max(crc64(&[]).min(0));"),
    ("a batch that is gone is not missed", STORE + "log/replay.rs",
     "    if !ended {\n        logged.damage", "    if false && !ended {\n        logged.damage"),
    ("batches need not follow one another's sums", STORE + "log/replay.rs",
     "&& batch.header.prior == mark.sum", "|| batch.header.number == mark.batch.next().0"),
    ("a batch begins inside a sector of the one before", STORE + "log/ring.rs",
     "self.ring.sector as usize)", "512)"),
    ("the data in the log is not shown to readers", STORE + "data.rs",
     "let owed = self.owed.collect(blocks);", "let owed: Vec<(BlockNo, crate::owed::Page)> = Vec::new();"),
    ("patches forget what they lie over", STORE + "log/recover.rs",
     "if let Some(base) = patch.base\n", "if let Some(base) = patch.base.filter(|_| false)\n"),
    ("blocks that the log gives back stay in use", STORE + "log/recover.rs",
     "space.free(blocks, false);", ""),
    ("blocks that the log gives back may be used in the recovery", STORE + "log/recover.rs",
     "space.free(blocks, false);", "space.free(blocks, false); space.give_away(&[blocks]);"),
    ("a recovery forgets which inode numbers were given away", STORE + "log/recover.rs",
     "self.inode_next.fetch_max(header.inode_next, Ordering::AcqRel);", ""),
    ("a recovery leaves the log where it was", STORE + "log/recover.rs",
     "self.pending.get_mut().set_place(place);", ""),
    ("an fsync forgets the names above", POSIX + "op/sync.rs",
     "let changed = inode.state.read().changed.max(last_move);",
     "let _ = last_move;\n    let changed = inode.state.read().changed;"),
    ("an fsync forgets the data of its file", POSIX + "op/sync.rs",
     "let data = settle_for_log(core, inode)?;",
     "let data = if core.options.read_only { settle_for_log(core, inode)? } else { Default::default() };"),
    ("a rename over another file leaves its data behind", POSIX + "op/rename.rs",
     "let settling = step.to_settle(&seen);",
     "let settling = step.to_settle(&seen).map(|inode| inode.filter(|_| false));"),
]

# The tests, from the fast and near to the slow and far: packages, arguments.
TESTS = [
    ("holdfast-store", ["--lib"]),
    ("holdfast-store", ["--test", "log"]),
    ("holdfast-store", ["--test", "power_cut_log"]),
    ("holdfast-sim", ["--test", "log_errors", "--test", "teeth"]),
    ("holdfast-sim", ["--test", "power_cut_log"]),
    ("holdfast", ["--test", "no_cliff"]),
    ("holdfast-store", ["--test", "failures"]),
]
# A broken log may wait for ever.
LIMIT = int(os.environ.get("TEETH_SECONDS", 600))

def cargo(where, args, limit):
    """Status and output; a test that finds no end is ended, with all that it started."""
    child = subprocess.Popen(["cargo", "test", "--offline", "-q", *args], cwd=where, text=True, start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        return child.communicate(timeout=limit)[0], child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()[0], None

def found_by(where):
    """The first test that notices, or None."""
    for package, args in TESTS:
        out, status = cargo(where, ["-p", package, *args, "--no-run"], None)
        if status != 0: sys.exit("the breakage does not compile:\n" + out)
        out, status = cargo(where, ["-p", package, *args], LIMIT)
        if status is None: return f"{package} {' '.join(args)}: no end"
        if status != 0:
            names = re.findall(r"^test (\S+) \.\.\. FAILED|^    ([\w:]+)$", out, re.M)
            return f"{package}: " + (next((a or b for a, b in names), "a panic"))

def main():
    words = sys.argv[1:]
    top = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True).stdout.strip()
    missed = 0
    with tempfile.TemporaryDirectory() as temp:
        where = os.path.join(temp, "holdfast")
        shutil.copytree(top, where, ignore=shutil.ignore_patterns("target", ".git"))
        os.environ.setdefault("CARGO_TARGET_DIR", os.path.join(temp, "target"))
        for what, path, old, new in BREAKAGES:
            if words and not any(word in what for word in words): continue
            name = os.path.join(where, path)
            text = open(name).read()
            if text.count(old) != 1: sys.exit(f"{what}: {path} has it {text.count(old)} times: {old}")
            open(name, "w").write(text.replace(old, new))
            who = found_by(where)
            open(name, "w").write(text)
            print(f"{what}: {who or 'MISSED'}", flush=True)
            missed += who is None
    sys.exit(1 if missed else 0)

main()
