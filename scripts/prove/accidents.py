"""Accidents: the same blocks of the same tree are overwritten on several filesystems; each one's repair is run, and each one's
program that copies out what is left; then every file is compared. The sh script beside this says what it needs.

The tree follows from a number. On each filesystem it is made, a snapshot is taken where there are any, and a part changes. Ours is killed
then: its log is in use, and it has three snapshots and two forks, one of which changes as well. The others are unmounted in order, so that their logs
are empty; and so is ours once more, in a volume of its own (`rested`), to which the other is compared where no block of a ring was hit.
SMALL=1 in the environment takes a fifth of the size; TREES=all looks at all trees each time, and not each fifth.

usage: accidents.py make SYSTEM DIR            makes DIR/SYSTEM.img; what it holds stands in DIR/SYSTEM.json
       accidents.py run SYSTEM DIR ROW FIRST COUNT   accidents FIRST and so on of one row; a line for each into DIR/results
       accidents.py table DIR                  the results as a table; exit code 1 if Holdfast has a wrong file
       accidents.py rows                       the names of the rows, with how many of 100 accidents each gets
       accidents.py look DIR                   what a directory holds, as JSON (for `run`)
"""
import collections, hashlib, json, os, random, resource, shutil, signal, subprocess, sys, time

HOLDFAST = os.environ["HOLDFAST"]
BLOCK, MIB = 4096, 1 << 20
SMALL = bool(os.environ.get("SMALL"))
SIZE = (64 if SMALL else 320) * MIB
FILES, DIRS = (500, 20) if SMALL else (2500, 60)
# All trees of ours, and what mounts them.
TREES = {"main": "", "main@one": "@one", "main@two": "@two", "main@three": "@three", "fork": ":fork", "work": ":work"}
# Seconds of processor time for one program, so that a busy machine stops none; and of waiting, for one that hangs.
LIMIT, PATIENCE = 180, 1800

SYSTEMS = {
    "holdfast": "Holdfast, `fsck -y --accept-loss`", "holdfast-salvage": "Holdfast, `salvage`",
    "holdfast2": "Holdfast, `--copies metadata=2`, `fsck -y --accept-loss`", "holdfast2-salvage": "Holdfast, `--copies metadata=2`, `salvage`", "rested": "Holdfast, left in order", "rested2": "Holdfast, `--copies metadata=2`, left in order", "ext4": "ext4, `e2fsck -fy`", "xfs": "XFS, `xfs_repair`",
    "btrfs": "btrfs, `check --repair`", "btrfs-restore": "btrfs, `restore`",
}
ROWS = {
    "1 block": 20, "10 blocks": 21, "100 blocks": 21, "1,000 blocks": 21, "10 nodes": 8,
    "the first MiB": 3, "the last MiB": 3, "every second MiB": 3,
}

# The programs that had to be stopped in the present accident, and the paths of each tree that a repair of ours calls lost.
stopped, told = [], {}

def run(*words, **more):
    """The exit code of a program and what it said; None if it had to be stopped."""
    def limits(): resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=limits, **more) as child:
        try:
            said = child.communicate(timeout=PATIENCE)[0]
            if child.returncode != -signal.SIGXCPU: return child.returncode, said.decode(errors="replace")
        except subprocess.TimeoutExpired: os.killpg(child.pid, signal.SIGKILL)
        stopped.append(os.path.basename(words[0]))
        return None, "it took too long"

def must(*words, **more):
    code, said = run(*words, **more)
    if code != 0: raise SystemExit(f"{' '.join(words)}: exit code {code}: {said}")
    return said

# The tree.

def size(chance):
    kind = chance.random()
    if kind < 0.35: return chance.randrange(1, 3500)
    if kind < 0.85: return chance.randrange(3500, 40_000)
    if kind < 0.99: return chance.randrange(40_000, 200_000)
    return chance.randrange(500_000, 3_000_000)

def write(at, path, chance):
    with open(f"{at}/{path}", "wb") as file: file.write(chance.randbytes(size(chance)))

def grow(at, chance):
    for number in range(DIRS):
        parent = f"d{chance.randrange(number)}" if number > 8 and chance.random() < 0.6 else ""
        place = f"{at}/d{number}"
        os.mkdir(place)
        if parent: os.symlink(f"../{parent}", f"{place}/up")
    for number in range(FILES):
        where = f"d{chance.randrange(DIRS)}"
        if chance.random() < 0.02: os.symlink(f"../target-{number}", f"{at}/{where}/s{number}")
        else: write(at, f"{where}/f{number}", chance)

def change(at, chance, share):
    """A part of the files is written anew, removed, renamed, or is new."""
    paths = sorted(f"{root[len(at) + 1:]}/{name}" for root, dirs, files in os.walk(at) for name in files if name.startswith("f") and "/.snapshots" not in root)
    for path in chance.sample(paths, int(len(paths) * share)):
        kind = chance.random()
        if kind < 0.5: write(at, path, chance)
        elif kind < 0.7: os.unlink(f"{at}/{path}")
        elif kind < 0.85: os.rename(f"{at}/{path}", f"{at}/{path}-moved")
        else: write(at, f"{path}-new", chance)

def is_older(path, states):
    """Whether a file is not what it is in the first state, but what it was in an earlier moment: in another state, or in the middle of being written anew."""
    with open(path, "rb") as file: now = file.read()
    for at, state in enumerate(states):
        try:
            with open(state, "rb") as file: was = file.read()
        except OSError: continue
        if was == now: return at > 0
        if now == was[:len(now)] and len(now) % BLOCK == 0: return True
    return False

def look(at, *states):
    """Each path with what is there: a sum, a target, or why it does not read. Of files that are not as in the first of `states`, also whether they are
    as they were in a moment before."""
    found = {}
    def failed(path, error): found[path] = ["error", error.strerror or str(error)]
    def walk(path):
        try: names = os.listdir(f"{at}/{path}")
        except OSError as error: return failed(path, error)
        for name in sorted(names):
            if path == "" and name == ".snapshots": continue
            one = f"{path}/{name}"
            try:
                if os.path.islink(at + one): found[one] = ["link", os.readlink(at + one)]
                elif os.path.isdir(at + one):
                    os.lstat(at + one)
                    walk(one)
                elif os.lstat(at + one) and os.path.isfile(at + one):
                    with open(at + one, "rb") as file: found[one] = ["file", hashlib.file_digest(file, "sha256").hexdigest()]
                    if states and is_older(at + one, [state + one for state in states]): found[one].append("older")
                else: found[one] = ["other", ""]
            except OSError as error: failed(one, error)
    walk("")
    return found

def seen(at, states=()):
    """The same in a process of its own: a read of a damaged volume may never come back."""
    code, said = run(sys.executable, __file__, "look", at, *states)
    try: return json.loads(said) if code == 0 else None
    except ValueError: return None

# Making the volumes.

def create(path):
    with open(path, "wb") as file: file.truncate(SIZE)

def make_peer(system, base):
    image, at = f"{base}/{system}.img", f"{base}/at-{system}"
    os.makedirs(at, exist_ok=True)
    create(image)
    must(*{"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"], "btrfs": ["mkfs.btrfs", "-q", "-f"]}[system], image)
    must("mount", "-o", "loop", image, at)
    try:
        tree(at, lambda: system == "btrfs" and must("btrfs", "subvolume", "snapshot", "-r", at, f"{at}/.snapshots"))
        found = {"main": look(at)}
    finally: must("umount", at)
    return found

def tree(at, snapshot, later=lambda chance: None):
    chance = random.Random("accidents")
    grow(at, chance)
    os.sync()
    snapshot()
    change(at, chance, 0.2)
    later(chance)
    fd = os.open(at, os.O_RDONLY)
    os.fsync(fd)
    # What the log of ours has: some files more, each fsynced.
    for number in range(150):
        write(at, f"d0/late{number}", chance)
        with open(f"{at}/d0/late{number}", "rb") as file: os.fsync(file.fileno())
    os.fsync(fd)
    os.close(fd)

def keep(at, state):
    """What an accident may take a volume back to, if the log ends early behind it."""
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(at, state, symlinks=True, ignore=shutil.ignore_patterns(".snapshots"))

def is_ours(system): return system.startswith(("holdfast", "rested"))

def make_ours(volume, base):
    image, at, states = f"{base}/{volume}.img", f"{base}/at-{volume}", f"{base}/states/{volume}"
    fork = f"{at}-fork"
    for place in (at, fork): os.makedirs(place, exist_ok=True)
    copies = ["--copies", "metadata=2"] if volume.endswith("2") else []
    must(HOLDFAST, "mkfs", "-q", "--force", *copies, "--size", str(SIZE), image)
    daemon = subprocess.Popen([HOLDFAST, "mount", "--foreground", "-o", "snapdir=visible,commit=300", image, at], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = {}
    def snapshot(name="one"):
        must(HOLDFAST, "snapshot", "create", at, name)
        found[f"main@{name}"] = look(f"{at}/.snapshots/{name}")
        keep(f"{at}/.snapshots/{name}", f"{states}/{name}")
    def later(chance):
        snapshot("two")
        change(at, chance, 0.1)
        snapshot("three")
        must(HOLDFAST, "fork", image, "--from", "main@three", "work")
        must(HOLDFAST, "fork", image, "--from", "main@one", "fork")
        must(HOLDFAST, "mount", f"{image}:fork", fork)
        change(fork, chance, 0.1)
        found["fork"], found["work"] = look(fork), found["main@three"]
        keep(fork, f"{states}/fork")
        must(HOLDFAST, "sync", at)
    try:
        while not os.path.ismount(at):
            if daemon.poll() is not None: raise SystemExit("the volume does not mount")
            time.sleep(0.02)
        tree(at, snapshot, later)
        found["main"] = look(at)
        keep(at, f"{states}/main")
        if volume.startswith("rested"):
            for place in (fork, at): must(HOLDFAST, "umount", place)
    finally:
        daemon.kill()
        daemon.wait()
        for place in (fork, at):
            if os.path.ismount(place) or volume.startswith("holdfast"): run("umount", "-l", place)
    return found

def make(system, base):
    found = make_ours(system, base) if is_ours(system) else make_peer(system, base)
    with open(f"{base}/{system}.json", "w") as file: json.dump(found, file)
    used = os.stat(f"{base}/{system}.img").st_blocks * 512 // MIB
    print(f"  {system}: {len(found['main'])} files and links, {used} MiB of {SIZE // MIB} were written")

# Damage.

def damage(image, row, seed):
    chance = random.Random(f"{row}/{seed}")
    blocks, per = SIZE // BLOCK, MIB // BLOCK
    if row == "the first MiB": hit = range(per)
    elif row == "the last MiB": hit = range(blocks - per, blocks)
    elif row == "every second MiB": hit = [at for at in range(blocks) if at // per % 2 == seed % 2]
    else:
        among = range(blocks)
        # Blocks with nodes of ours, of any age; elsewhere any blocks.
        if row.endswith("nodes"):
            with open(image, "rb") as file: content = file.read()
            among = [at for at in among if content[at * BLOCK:at * BLOCK + 4] == b"hfNd"] or among
        hit = chance.sample(among, int(row.split()[0].replace(",", "")))
    with open(image, "r+b") as file:
        for block in hit:
            file.seek(block * BLOCK)
            file.write(chance.randbytes(BLOCK))
    return hit

def rings(image):
    """The blocks of journal and log of ours, in all their places."""
    with open(image, "rb") as file:
        for slot in (16, 48):
            file.seek(slot * BLOCK)
            block = file.read(BLOCK)
            if block[:16] != b"holdfast volume\n": continue
            number = lambda at: int.from_bytes(block[at:at + 8], "little")
            length = number(160) + number(168)
            return [range(at, at + length) for at in {256, 256 + number(680)}]
    return []

# Repairs. Each gives what can be read behind it, by tree.

def mounted(at, *mount, states=()):
    """What a mount shows; nothing if it cannot be mounted."""
    code, said = run(*mount)
    if code != 0: return None
    try: return seen(at, states)
    finally:
        code, said = run("umount", at)
        if code != 0: run("umount", "-l", at)

def repaired(system, image, at, seed):
    if is_ours(system) and not system.endswith("-salvage"):
        _, said = run(HOLDFAST, "fsck", "-y", "--accept-loss", "--json", image)
        try: repairs = json.loads(said).get("repairs", [])
        except ValueError: repairs = []
        # The other trees are looked at each fifth time: reading takes most of the time.
        names = TREES if os.environ.get("TREES") == "all" or seed % 5 == 0 else ["main"]
        found = {}
        for name in names:
            # Where journal or log end early, an older state is there.
            states = [f"{os.path.dirname(image)}/states/{system}/{state}" for state in dict.fromkeys([name.split("@")[-1].replace("work", "three"), "three", "two", "one"])]
            found[name] = mounted(at, HOLDFAST, "mount", "-o", "ro", f"{image}{TREES[name]}", at, states=states)
            told[name] = {it["path"] for it in repairs if it["loses"] and it.get("path") and (it.get("tree") or "main") == name}
            if any(it["loses"] and not it.get("path") and it.get("tree") == name for it in repairs): told[name].add("/")
        return found
    if system in ("holdfast-salvage", "holdfast2-salvage"): return salvaged(image, at, f"{os.path.dirname(image)}/states/{system.split('-')[0]}")
    if system == "btrfs-restore":
        run("btrfs", "rescue", "super-recover", "-y", image)
        return copied(at, "btrfs", "restore", "-i", "-S", image, f"{at}-out")
    if system == "ext4":
        for _ in range(3):
            if run("e2fsck", "-fy", image)[0] in (0, 1): break
        options = "ro,loop,errors=continue"
    if system == "xfs":
        if run("xfs_repair", "-f", image)[0] == 2: run("xfs_repair", "-f", "-L", image)
        # A copy of a volume that may be mounted beside it.
        options = "ro,loop,norecovery,nouuid"
    if system == "btrfs":
        run("btrfs", "rescue", "super-recover", "-y", image)
        run("btrfs", "check", "--repair", "--force", image)
        options = "ro,loop"
    return {"main": mounted(at, "mount", "-t", system, "-o", options, image, at)}

def copied(at, *program, states=()):
    out = program[-1]
    shutil.rmtree(out, ignore_errors=True)
    os.mkdir(out)
    run(*program)
    try: return {"main": seen(out, states)}
    finally: shutil.rmtree(out, ignore_errors=True)

def salvaged(image, at, states):
    """What ours copies out. A copy has holes where a read would give an error: a file that the report does not call whole is told."""
    report = f"{at}-report"
    found = copied(at, HOLDFAST, "salvage", "--json", "--report", report, image, f"{at}-out", states=[f"{states}/{name}" for name in ("main", "one")])
    with open(report) as file:
        for line in map(json.loads, file):
            if not line.get("whole") and line.get("path") in (found["main"] or {}): found["main"][line["path"]].append("told")
    os.unlink(report)
    return found

def is_told(path, names):
    """Whether a loss names a file, or a directory above it; or, where its directory is not known, its last name alone."""
    last = f"?/{path.rsplit('/', 1)[-1]}"
    return path in names or any(path.startswith(name.rstrip("/") + "/") or name.split(" (inode")[0] == last for name in names)

def count(was, now, names=()):
    """How many files are what they were, and how many are gone or older without a line of the repair that says so."""
    counts = collections.Counter()
    if now is None: return {"lost": 1, "missing": len(was), "untold": 0 if "/" in names else len(was)}
    pieces = collections.Counter(tuple(one[:2]) for path, one in now.items() if path.startswith("/lost+found"))
    bad = [path for path, one in now.items() if one[0] == "error"]
    for path, one in was.items():
        there = now.get(path)
        if there and there[:2] == one: counts["right"] += 1
        elif there and "older" in there:
            counts["older"] += 1
            counts["untold"] += not is_told(path, names)
        elif there and (there[0] == "error" or "told" in there): counts["error"] += 1
        elif there: counts["wrong"] += 1
        elif pieces[tuple(one)] > 0: counts["nameless"] += 1
        elif any(path.startswith(f"{dir}/") for dir in bad): counts["error"] += 1
        else:
            counts["missing"] += 1
            counts["untold"] += not is_told(path, names)
    # A file under a name that there never was.
    counts["wrong"] += sum(path not in was and one[0] != "error" and not {"older", "told"} & set(one) and not path.startswith("/lost+found") for path, one in now.items())
    return counts

def accidents(system, base, row, first, number):
    volume = system.split("-")[0]
    with open(f"{base}/{volume}.json") as file: was = json.load(file)
    image, at = f"{base}/{system}.hit.img", f"{base}/at-{system}"
    os.makedirs(at, exist_ok=True)
    for seed in range(first, first + number):
        must("cp", "--sparse=always", f"{base}/{volume}.img", image)
        zones = rings(image) if is_ours(system) else []
        hit = damage(image, row, seed)
        begun = time.monotonic()
        stopped.clear()
        told.clear()
        trees = repaired(system, image, at, seed)
        line = {"system": system, "row": row, "seed": seed, "seconds": round(time.monotonic() - begun, 2)}
        if stopped: line["stopped"] = stopped.copy()
        if zones: line["rings"] = sum(block in zone for block in hit for zone in zones)
        line["trees"] = {name: {"all": len(was[name]), **count(was[name], now, told.get(name, ()))} for name, now in trees.items()}
        with open(f"{base}/results", "a") as file: file.write(json.dumps(line) + "\n")
    os.unlink(image)

def beside_rest(lines):
    """What a crash costs beside an accident: the same accidents on a volume that was killed and on one that was left in order."""
    for crashed, rested in (("holdfast", "rested"), ("holdfast2", "rested2")):
        of = {system: {(line["row"], line["seed"]): line for line in lines if line["system"] == system} for system in (crashed, rested)}
        both = sorted(set(of[crashed]) & set(of[rested]))
        for title, wanted in (("no ring hit", lambda line: not line["rings"]), ("rings hit", lambda line: line["rings"])):
            keys = [key for key in both if wanted(of[crashed][key])]
            if not keys: continue
            shares = {}
            for system in of:
                sums = collections.Counter()
                for key in keys:
                    for tree in of[system][key]["trees"].values(): sums.update(tree)
                shares[system] = f"{100 * (sums['right'] + sums['nameless']) / sums['all']:.2f} % right, {sums['older']:,} older, {sums['missing']:,} gone, {sums['untold']:,} of them without a line"
            print(f"  {title}, {len(keys)} accidents: {SYSTEMS[crashed]}: {shares[crashed]}; {SYSTEMS[rested]}: {shares[rested]}")

def table(base):
    sums = collections.defaultdict(collections.Counter)
    with open(f"{base}/results") as file: lines = [json.loads(line) for line in file]
    for line in lines:
        for name, tree in line["trees"].items():
            sums[line["row"], line["system"], name == "main"].update({"accidents": 1, "stopped": int("stopped" in line), **tree})
    systems = [system for system in SYSTEMS if any(line["system"] == system for line in lines)]
    rows = [row for row in ROWS if any(line["row"] == row for line in lines)]
    print(f"| damage | accidents | {' | '.join(SYSTEMS[system] for system in systems)} |")
    print(f"| --- | ---: |{' ---: |' * len(systems)}")
    def cell(of):
        if not of["accidents"]: return "–"
        text = f"{100 * of['right'] / of['all']:.2f} %"
        if of["nameless"]: text += f", +{100 * of['nameless'] / of['all']:.2f} %"
        if of["older"]: text += f", {of['older']:,} older"
        if of["wrong"]: text += f", **{of['wrong']:,} wrong**"
        if of["lost"]: text += f", {of['lost']} lost"
        if of["stopped"]: text += f", {of['stopped']} with a program that did not end"
        return text
    for row in rows:
        most = max(sums[row, system, True]["accidents"] for system in systems)
        print(f"| {row} | {most} | {' | '.join(cell(sums[row, system, True]) for system in systems)} |")
    for row in rows:
        for system in ("holdfast", "holdfast2", "rested", "rested2"):
            of = sums[row, system, False]
            if of["accidents"]: print(f"  other trees of {SYSTEMS[system]}, {row}: {cell(of)}")
    beside_rest(lines)
    wrong = [line for line in lines if is_ours(line["system"]) and any(tree.get("wrong") for tree in line["trees"].values())]
    for line in wrong[:10]: print("wrong:", json.dumps(line))
    return 1 if wrong else 0

if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "make": make(*rest)
    elif what == "run": accidents(*rest[:3], int(rest[3]), int(rest[4]))
    elif what == "table": sys.exit(table(*rest))
    elif what == "rows": print("\n".join(f"{share}\t{row}" for row, share in ROWS.items()))
    elif what == "look": print(json.dumps(look(*rest)))
    else: raise SystemExit(__doc__)
