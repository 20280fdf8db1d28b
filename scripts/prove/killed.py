"""Eight programs that make things durable in a directory until its server is killed, and what must be left then.

Every program says on the host, outside of the directory, what it will do and what was acknowledged, in files of
HOST that the kill cannot touch. Contents follow from a program's name and a number, so that nothing needs to be kept.
The numbers P1 to P5 are those of the promises in the design.

usage: killed.py new DIR HOST       makes what the programs need in an empty directory; forgets what HOST says
       killed.py load DIR HOST      runs all programs until the server is gone; makes HOST/ready when all have begun.
                                    A program that fails while HOST/killed does not exist is an error. When HOST/enough is there, all end
                             and say how long their longest step took.
       killed.py check DIR HOST     compares; prints how much was acknowledged so far
       killed.py total HOST...      sums what `check` left in several directories
"""
import collections, json, os, random, shutil, signal, sqlite3, subprocess, sys, threading, time

SIZES = [100, 700, 3000, 4096, 4096, 5000, 20_000, 70_000, 300_000]
WAIT = 30  # seconds that a program is given to notice that the server is gone

class Wrong(Exception):
    """Something acknowledged is missing or differs."""

def wanted(yes, *what):
    if not yes: raise Wrong(" ".join(map(str, what)))

def length(name, number): return random.Random(f"{name}/{number}").choice(SIZES)

def content(name, number, size=None):
    """The bytes that `name` writes as its `number`th."""
    chance = random.Random(f"{name}/{number}")
    return chance.randbytes(size or chance.choice(SIZES))

def write(fd, data):
    """All of it: a server that is killed in the middle of a write makes the kernel say that a part was written."""
    while data: data = data[os.write(fd, data):]

def put(path, data, sync):
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        write(fd, data)
        if sync: os.fsync(fd)
    finally: os.close(fd)

def get(path):
    with open(path, "rb") as file: return file.read()

def fsync(path):
    fd = os.open(path, os.O_RDONLY)
    try: os.fsync(fd)
    finally: os.close(fd)

class Program:
    """One program: its directory, and its lines on the host."""
    def __init__(self, base, host):
        self.name = type(self).__name__.lower()
        self.root, self.path = f"{base}/{self.name}", f"{host}/{self.name}.said"
        self.out = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.chance = random.Random(f"{self.name}/{host}/{len(self.said())}")
    def at(self, *names): return "/".join([self.root, *map(str, names)])
    def say(self, *words): os.write(self.out, (json.dumps(words) + "\n").encode())
    def said(self):
        with open(self.path) as file: return [json.loads(line) for line in file]
    def forget(self): os.truncate(self.path, 0)
    def new(self): os.mkdir(self.root)
    def begin(self): pass
    # step(): does one thing and says what was acknowledged. check(): raises Wrong; returns how much was.

class Maildir(Program):
    """Deliveries by rename and by link, marked as read, expunged: each durable when it is said (P1, P2)."""
    def new(self):
        super().new()
        for part in "tmp", "new", "cur": os.mkdir(self.at(part))
    def begin(self):
        self.number = 1 + max((line[1] for line in self.said()), default=0)
        self.unread, self.read = [], []
        for name in os.listdir(self.at("tmp")): os.unlink(self.at("tmp", name))
    def step(self):
        number, self.number = self.number, self.number + 1
        self.say("will", number)
        put(self.at("tmp", number), content(self.name, number), sync=True)
        if self.chance.random() < 0.3:
            os.link(self.at("tmp", number), self.at("new", number))
            os.unlink(self.at("tmp", number))
        else: os.rename(self.at("tmp", number), self.at("new", number))
        fsync(self.at("new"))
        self.say("new", number)
        self.unread.append(number)
        if self.chance.random() < 0.3:
            number = self.unread.pop(self.chance.randrange(len(self.unread)))
            self.say("will-read", number)
            os.rename(self.at("new", number), self.at("cur", number))
            fsync(self.at("cur"))
            self.say("cur", number)
            self.read.append(number)
        if self.read and self.chance.random() < 0.1:
            number = self.read.pop(0)
            self.say("will-expunge", number)
            os.unlink(self.at("cur", number))
            fsync(self.at("cur"))
            self.say("gone", number)
    def check(self):
        last = {number: what for what, number in self.said()}
        there = collections.defaultdict(list)
        for part in "new", "cur":
            for number in map(int, os.listdir(self.at(part))):
                there[number].append(part)
                # Also those that nobody was told of: what stands under its final name was fsynced before.
                wanted(get(self.at(part, number)) == content(self.name, number), "message", number, "in", part, "is damaged")
        for number, what in last.items():
            may = {"will": ([], ["new"]), "new": (["new"],), "will-read": (["new"], ["cur"]), "cur": (["cur"],),
                   "will-expunge": (["cur"], []), "gone": ([],)}[what]
            wanted(there[number] in may, "message", number, "said last:", what, "; found in", there[number])
            if what.startswith("will"): self.say({(): "gone", ("new",): "new", ("cur",): "cur"}[tuple(there[number])], number)
        return sum(line[0] in ("new", "cur", "gone") for line in self.said())

class Log(Program):
    """Appends of all sizes with fsync, fdatasync or O_SYNC: never shorter than said, and a tail as it was written (P1, P5)."""
    def begin(self):
        self.number = len(self.said())
        size = sum(length(self.name, number) for number in range(self.number))
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
        self.plain = os.open(self.at("log"), flags, 0o644)
        self.sync = os.open(self.at("log"), flags | os.O_SYNC, 0o644)
        os.ftruncate(self.plain, size)
    def step(self):
        how = self.chance.choice([os.fsync, os.fsync, os.fdatasync, None])
        write(self.plain if how else self.sync, content(self.name, self.number))
        if how: how(self.plain)
        self.say(self.number)
        self.number += 1
    def check(self):
        count = len(self.said())
        if not count: return 0
        found = get(self.at("log"))
        sure = b"".join(content(self.name, number) for number in range(count))
        wanted(len(found) >= len(sure), "said", len(sure), "bytes, found", len(found))
        tail = content(self.name, count)
        wanted(found == sure + tail[:len(found) - len(sure)], "the log's bytes differ")
        return count

class Slots(Program):
    """Overwrites of 4 KiB in one file with fdatasync: each slot holds what was said or what was on the way (P1)."""
    SLOTS = 256
    def page(self, slot, version): return json.dumps([slot, version]).encode().ljust(64) + content(f"slot{slot}", version, 4032)
    def new(self):
        super().new()
        put(self.at("slots"), b"".join(self.page(slot, 0) for slot in range(self.SLOTS)), sync=True)
    def begin(self):
        self.fd = os.open(self.at("slots"), os.O_RDWR)
        self.versions = [json.loads(os.pread(self.fd, 64, slot * 4096))[1] for slot in range(self.SLOTS)]
    def step(self):
        some = self.chance.sample(range(self.SLOTS), self.chance.choice([1, 1, 1, 4]))
        for slot in some:
            self.versions[slot] += 1
            self.say("will", slot, self.versions[slot])
            os.pwrite(self.fd, self.page(slot, self.versions[slot]), slot * 4096)
        os.fdatasync(self.fd)
        self.say("did", [(slot, self.versions[slot]) for slot in some])
    def check(self):
        low, high, count = [0] * self.SLOTS, [0] * self.SLOTS, 0
        for what, *rest in self.said():
            if what == "will": high[rest[0]] = rest[1]
            else:
                count += 1
                for slot, version in rest[0]: low[slot] = version
        found = get(self.at("slots"))
        wanted(len(found) == 4096 * self.SLOTS, "the file has", len(found), "bytes")
        for slot in range(self.SLOTS):
            page = found[slot * 4096:][:4096]
            version = next((v for v in range(low[slot], high[slot] + 1) if page == self.page(slot, v)), None)
            wanted(version is not None, "slot", slot, "holds none of the versions", low[slot], "to", high[slot])
            if high[slot] != low[slot]: self.say("will", slot, version); self.say("settled", [(slot, version)])
        return count

class Save(Program):
    """A new content under an old name: whole, and not older than said, also when its data was not fsynced (P1, P4)."""
    NAMES = 6
    def begin(self):
        self.versions = collections.Counter()
        for what, name, version in self.said(): self.versions[name] = version
        for name in os.listdir(self.root):
            if name.startswith("tmp"): os.unlink(self.at(name))
    def step(self):
        name = f"file{self.chance.randrange(self.NAMES)}"
        version = self.versions[name] = self.versions[name] + 1
        tmp = self.at(f"tmp-{name}")
        self.say("will", name, version)
        # Without fsync only what replaces another comes with its data (P4).
        put(tmp, content(name, version), sync=version == 1 or self.chance.random() < 0.7)
        os.rename(tmp, self.at(name))
        fsync(self.root)
        self.say("did", name, version)
    def check(self):
        low, high = collections.Counter(), collections.Counter()
        lines = self.said()
        for what, name, version in lines: (high if what == "will" else low)[name] = version
        for name in high:
            if not low[name] and not os.path.exists(self.at(name)): continue
            wanted(os.path.exists(self.at(name)), name, "is missing")
            found = get(self.at(name))
            whole = any(found == content(name, version) for version in range(max(low[name], 1), high[name] + 1))
            wanted(whole, name, "holds", len(found), "bytes, but none of the versions", low[name], "to", high[name])
        return sum(line[0] == "did" for line in lines)

class Tree(Program):
    """Names made, moved, replaced and removed, with an fsync of a directory now and then: the whole tree is as it was at
    one moment, not before the last fsync that was said (P2, P3, P4)."""
    MOST = 150
    def begin(self): self.tree = self.replay([line for line in self.said() if line[0] != "synced"])
    @staticmethod
    def apply(tree, op):
        """What an operation changes; `tree` maps paths to "dir" or a file's number."""
        what, path, *rest = op
        if what == "mkdir": tree[path] = "dir"
        elif what == "create": tree[path] = rest[0]
        elif what == "link": tree[rest[0]] = tree[path]
        elif what in ("unlink", "rmdir"): del tree[path]
        elif what == "rename":
            to = rest[0]
            for old in [old for old in tree if old == path or old.startswith(path + "/")]: tree[to + old[len(path):]] = tree.pop(old)
    @classmethod
    def replay(cls, ops):
        tree = {}
        for op in ops: cls.apply(tree, op)
        return tree
    def choose(self):
        """An operation that will succeed, none that leads to an object twice."""
        tree, chance = self.tree, self.chance
        dirs, files = [""], []
        for path, kind in tree.items(): (dirs if kind == "dir" else files).append(path)
        fresh = f"{chance.choice(dirs)}/n{chance.randrange(10**9)}"
        empty = lambda path: not any(other.startswith(path + "/") for other in tree)
        what = chance.choice(["mkdir", "create", "create", "rename", "rename", "replace", "move", "move", "link", "remove"])
        if len(tree) > self.MOST: what = "remove"
        if what == "create" or not files or len(dirs) < 2: return ["create", fresh, chance.randrange(10**9)] if chance.random() < 0.6 else ["mkdir", fresh]
        one = chance.choice(files)
        if what == "mkdir": return ["mkdir", fresh] if fresh.count("/") < 6 else ["unlink", one]
        if what == "rename": return ["rename", one, fresh]
        if what == "link": return ["link", one, fresh]
        if what == "replace":
            other = chance.choice(files)
            # Renaming one link of a file over another does nothing at all.
            return ["rename", one, other] if tree[one] != tree[other] else ["unlink", one]
        if what == "move":
            path = chance.choice(dirs[1:])
            over = [other for other in dirs[1:] if other != path and empty(other) and not path.startswith(other + "/") and not other.startswith(path + "/")]
            if over and chance.random() < 0.3: return ["rename", path, chance.choice(over)]
            return ["rename", path, fresh] if not fresh.startswith(path + "/") else ["rename", one, fresh]
        bare = [path for path in dirs[1:] if empty(path)]
        return ["rmdir", chance.choice(bare)] if bare and chance.random() < 0.4 else ["unlink", one]
    def step(self):
        op = self.choose()
        self.say(*op)
        what, path, *rest = op
        if what == "mkdir": os.mkdir(self.root + path)
        elif what == "create": put(self.root + path, b"", sync=False); os.setxattr(self.root + path, "user.number", str(rest[0]).encode())
        elif what == "link": os.link(self.root + path, self.root + rest[0])
        elif what == "unlink": os.unlink(self.root + path)
        elif what == "rmdir": os.rmdir(self.root + path)
        else: os.rename(self.root + path, self.root + rest[0])
        self.apply(self.tree, op)
        if self.chance.random() < 0.3:
            # What changed last: history is one sequence, so everything before is durable as well (P3).
            last = self.root + (rest[0] if what in ("rename", "link") else path)
            fsync(last if what == "create" else os.path.dirname(last))
            self.say("synced")
    def found(self):
        tree, bare = {}, None
        for root, dirs, files in os.walk(self.root):
            for name in dirs: tree[os.path.join(root, name)[len(self.root):]] = "dir"
            for name in files:
                path = os.path.join(root, name)
                try: tree[path[len(self.root):]] = int(os.getxattr(path, "user.number"))
                except OSError:
                    # Making a file and numbering it are two operations, and the end came between them.
                    wanted(bare is None, "two files without a number:", bare, "and", path)
                    bare, tree[path[len(self.root):]] = path, None
        return tree
    def check(self):
        found, lines = self.found(), self.said()
        synced = max((index for index, line in enumerate(lines) if line[0] == "synced"), default=-1)
        tree = self.replay(line for line in lines[:synced + 1] if line[0] != "synced")
        good, rest = None, lines[synced + 1:]
        for count, line in enumerate([None, *rest]):
            if line: self.apply(tree, line)
            if tree == found: good = count
            elif line and line[0] == "create" and {**tree, line[1]: None} == found:
                os.setxattr(self.root + line[1], "user.number", str(line[2]).encode())
                good = count
        if good is None:
            tree = self.replay(line for line in lines[:synced + 1] if line[0] != "synced")
            missing = {path: kind for path, kind in tree.items() if found.get(path, "") != kind}
            extra = {path: kind for path, kind in found.items() if tree.get(path, "") != kind}
            wanted(False, "the tree is at none of the", len(rest) + 1, "moments after the last acknowledged fsync; there it had", missing,
                   "which are not; found beside it", extra, "; said since", rest)
        # History goes on from here.
        count = sum(line[0] == "synced" for line in lines)
        fsync(self.root)
        history = lines[:synced + 1] + rest[:good] + [["synced"]]
        self.forget()
        for line in history: self.say(*line)
        return count

class Git(Program):
    """Commits with core.fsync=all, and sometimes gc. Git never fsyncs a directory, so a commit counts after that (P2)."""
    def git(self, *arguments, answer=False):
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
                       "GIT_AUTHOR_NAME": "p", "GIT_AUTHOR_EMAIL": "p@localhost", "GIT_COMMITTER_NAME": "p", "GIT_COMMITTER_EMAIL": "p@localhost"}
        settings = ["-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "gc.auto=0", "-c", "core.preloadIndex=false"]
        command = ["git", "-C", self.root, *settings, *arguments]
        if answer: return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout
        # Git may complain for ever about a directory whose server is gone: it ends when nobody listens.
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True) as git:
            end = threading.Timer(WAIT, os.killpg, (git.pid, signal.SIGKILL))
            end.start()
            complaint = git.stderr.read(20_000).decode(errors="replace").strip()
            git.stderr.close()
            code = git.wait()
            end.cancel()
        if code: raise OSError(f"git {arguments[0]}: exit code {code}: {complaint[:500]}")
    def new(self):
        super().new()
        self.git("init", "-q", "-b", "main")
    def unlock(self):
        """As git asks of people after a crash; packed-refs.new has no lock's name."""
        for root, _, files in os.walk(self.at(".git")):
            for name in files:
                if name.endswith(".lock") or name == "packed-refs.new": os.unlink(os.path.join(root, name))
    def begin(self):
        self.unlock()
        self.number = len(self.said())
    def step(self):
        for _ in range(3):
            with open(self.at(f"file{self.chance.randrange(20)}"), "wb") as file: file.write(content(self.name, f"{self.number}/{self.chance.random()}", 2000))
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", f"number {self.number}")
        fsync(self.at(".git/refs/heads"))
        self.say(get(self.at(".git/refs/heads/main")).decode().strip())
        self.number += 1
        if self.chance.random() < 0.05:
            self.git("gc", "-q", "--prune=now")
            # Refs are packed then; a loose one comes with the next commit.
            fsync(self.at(".git"))
    def check(self):
        self.unlock()
        lines = [line[0] for line in self.said()]
        self.git("fsck", "--strict", "--no-dangling")
        if lines:
            kept = set(self.git("rev-list", "HEAD", answer=True).split())
            missing = [line for line in lines if line not in kept]
            wanted(not missing, len(missing), "commits are gone:", missing[:3])
        return len(lines)

class Wal(Program):
    """SQLite with a write-ahead log and synchronous=FULL: every row whose commit returned is there (P1)."""
    MODE = "wal"
    def open(self):
        db = sqlite3.connect(self.at("rows.db"), isolation_level=None)
        db.execute("pragma synchronous=full")
        db.execute("pragma wal_autocheckpoint=60")
        return db
    def new(self):
        super().new()
        db = self.open()
        wanted(db.execute(f"pragma journal_mode={self.MODE}").fetchone()[0] == self.MODE, "no", self.MODE)
        db.execute("create table t(id integer primary key, filler blob)")
        db.execute("create table last(id integer)"); db.execute("insert into last values(0)")
        db.close()
        fsync(self.root)
    def begin(self):
        self.db = self.open()
        self.number = self.db.execute("select id from last").fetchone()[0]
    def step(self):
        self.db.execute("begin")
        for _ in range(self.chance.choice([1, 1, 3])):
            self.number += 1
            self.db.execute("insert into t values(?, ?)", (self.number, content(self.name, self.number, 3000)))
        self.db.execute("update last set id = ?", (self.number,))
        self.db.execute("commit")
        # SQLite takes a directory that it cannot open for one that needs no fsync, so when the server dies at that
        # moment, a commit says yes although nobody was asked. And with FULL the removal of a rollback journal, which
        # is the commit, is not made durable at all. This asks the server, and makes it durable.
        fsync(self.root)
        self.say(self.number)
    def check(self):
        db = self.open()
        answer = db.execute("pragma integrity_check").fetchone()[0]
        wanted(answer == "ok", "integrity_check:", answer)
        said = max((line[0] for line in self.said()), default=0)
        last = db.execute("select id from last").fetchone()[0]
        wanted(last >= said, "rows up to", said, "were acknowledged, the last is", last)
        count = 0
        for number, filler in db.execute("select id, filler from t order by id"):
            count += 1
            wanted(number == count and filler == content(self.name, number, 3000), "row", number, "differs")
        wanted(count == last, count, "rows, the last is", last)
        db.close()
        return len(self.said())

class Rollback(Wal):
    """The same with a rollback journal."""
    MODE = "delete"

PROGRAMS = [Wal, Rollback, Git, Maildir, Log, Slots, Save, Tree]

def run(program, host, told):
    """One program in a process of its own, until the server is gone. Gives the exit code."""
    try:
        program.begin()
        os.write(told, b"+")
        longest, steps = 0, 0
        while not os.path.exists(f"{host}/enough"):
            begun = time.monotonic()
            program.step()
            longest, steps = max(longest, time.monotonic() - begun), steps + 1
        print(f"{program.name}: {steps} steps, the longest {longest:.2f} s", flush=True)
        return 0
    except (OSError, sqlite3.Error) as error:
        # The file is made just before the kill.
        if os.path.exists(f"{host}/killed"): return 0
        print(f"{program.name}: {type(error).__name__}: {error}, although the server lives", file=sys.stderr, flush=True)
        return 1

def load(base, host):
    told, tell = os.pipe()
    children = {}
    for kind in PROGRAMS:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(told)
                code = run(kind(base, host), host, tell)
            except BaseException as error: print(f"{kind.__name__}: {error!r}", file=sys.stderr, flush=True)
            finally: os._exit(code)
        children[pid] = kind.__name__
    os.close(tell)
    # Ends early when all programs have ended before they began.
    for _ in PROGRAMS:
        if not os.read(told, 1): break
    open(f"{host}/ready", "w").close()
    bad, since = [], None
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            name = children.pop(pid)
            # A page of a mapped file (SQLite's index of its log) cannot be had without the server.
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS and os.path.exists(f"{host}/killed"): continue
            if status: bad.append(f"{name} ended with {os.waitstatus_to_exitcode(status)}")
            continue
        if os.path.exists(f"{host}/killed"):
            since = since or time.monotonic()
            if time.monotonic() - since > 2 * WAIT:
                for pid, name in children.items(): os.kill(pid, signal.SIGKILL)
                bad.append(f"still running {2 * WAIT} s after the server was killed: {sorted(children.values())}")
                break
        time.sleep(0.01)
    if bad: raise SystemExit("; ".join(bad))

def check(base, host):
    counts, bad = {}, []
    for kind in PROGRAMS:
        program = kind(base, host)
        try: counts[program.name] = program.check()
        except (Wrong, OSError, sqlite3.Error, subprocess.SubprocessError, ValueError) as error: bad.append(f"{program.name}: {type(error).__name__}: {error}")
    if bad: raise SystemExit("\n".join(bad))
    with open(f"{host}/counts", "w") as file: json.dump(counts, file)
    print(" ".join(f"{name} {count}" for name, count in counts.items()))

def total(hosts):
    counts = collections.Counter()
    for host in hosts:
        with open(f"{host}/counts") as file: counts.update(json.load(file))
    print(" ".join(f"{name} {count:,}" for name, count in counts.items()), f"in all {sum(counts.values()):,}")

if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "new":
        base, host = rest
        shutil.rmtree(host, ignore_errors=True)
        os.mkdir(host)
        for kind in PROGRAMS: kind(base, host).new()
    elif what == "load": load(*rest)
    elif what == "check": check(*rest)
    elif what == "total": total(rest)
    else: raise SystemExit(__doc__)
