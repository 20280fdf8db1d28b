# A program of `nobody` that asks a daemon without our help: WHAT SOCKET ARGUMENTS... It says "ready" when it has done its worst,
# and ends when its standard input does.
#
# ask QUESTION|PATH+FLAGS|...   asks each with the descriptors that it opens, and prints the last answer
# hold COUNT                    connects so often and says nothing
# lock                          locks the directory of the socket
# blocks IMAGE BRANCH DIR       joins, and keeps the daemon's reads from returning at once, as far as it can
# joins IMAGE BRANCH            joins again and again, and mounts nothing
# mute IMAGE DIR                joins with a file of a FUSE server that answers nothing any more
import fcntl, os, socket, struct, subprocess, sys, threading

os.setgroups([]); os.setgid(65534); os.setuid(65534)
what, path, *rest = sys.argv[1:]


def connected():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(path)
    return s


def hear(s):
    head = s.recv(4, socket.MSG_WAITALL)
    return s.recv(struct.unpack('<I', head)[0], socket.MSG_WAITALL).decode() if head else 'closed'


def tell(s, text, fds):
    text = text.encode()
    socket.send_fds(s, [struct.pack('<I', len(text)) + text], fds)


def ready():
    print('ready', flush=True)
    sys.stdin.read()


def mount(directory, name):
    ours, theirs = socket.socketpair()
    helper = subprocess.Popen(
        ['fusermount3', '-o', 'ro,fsname=%s,subtype=holdfast' % name, '--', directory],
        pass_fds=[theirs.fileno()], env=dict(os.environ, _FUSE_COMMFD=str(theirs.fileno())))
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    helper.wait()
    return fds[0]


def join(directory, branch):
    lists = '"options":["ro"],"branch":"%s","snapshot":null,"linger":false' % branch
    return '{"join":{"dir":"%s",%s}}' % (directory, lists)


def mute_server(fuse, mute):
    attr = lambda ino, mode: struct.pack('<6Q10I', ino, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 65534, 65534, 0, 4096, 0)
    file = attr(2, 0o100644)
    while True:
        try:
            request = os.read(fuse, 1 << 21)
        except OSError:
            return
        _, opcode, unique, node = struct.unpack('<IIQQ', request[:24])
        error, answer = -38, b''
        if opcode == 26:
            error, answer = 0, struct.pack('<IIIIHHIIHHI7I', 7, 31, 0, 0, 16, 12, 131072, 1, 0, 0, 0, *[0] * 7)
        elif opcode == 1:
            error, answer = 0, struct.pack('<4Q2I', 2, 0, 9, 0, 0, 0) + file
        elif opcode == 3 and not (mute.is_set() and node == 2):
            error, answer = 0, struct.pack('<QII', 0, 0, 0) + (attr(1, 0o40755) if node == 1 else file)
        elif opcode == 14:
            error, answer = 0, struct.pack('<QII', 0, 0, 0)
        elif opcode in (2, 42) or mute.is_set():
            continue
        os.write(fuse, struct.pack('<IiQ', 16 + len(answer), error, unique) + answer)


if what == 'ask':
    s = connected()
    said = hear(s)
    for question in rest:
        text, *opened = question.split('|')
        fds = [os.open(o.split('+')[0], eval(o.split('+')[1], vars(os))) for o in opened]
        tell(s, text, fds)
        said = hear(s)
    print(said)
elif what == 'hold':
    held = [connected() for _ in range(int(rest[0]))]
    ready()
elif what == 'lock':
    fcntl.flock(os.open(os.path.dirname(path), os.O_RDONLY), fcntl.LOCK_EX)
    ready()
elif what == 'blocks':
    image, branch, directory = rest
    s = connected()
    hear(s)
    tell(s, join(directory, branch), [os.open(image, os.O_RDONLY)])
    assert 'mount' in hear(s)
    fuse = mount(directory, image)
    # The daemon waits for what begins a connection, and does not get it.
    os.read(fuse, 1 << 21)

    def clear():
        while True:
            fcntl.fcntl(fuse, fcntl.F_SETFL, os.O_RDWR)

    threading.Thread(target=clear, daemon=True).start()
    tell(s, '{"mounted":{"dir":"%s","device":"0:1"}}' % directory, [fuse])
    ready()
elif what == 'joins':
    image, branch = rest
    file = os.open(image, os.O_RDONLY)
    begun = threading.Event()

    def again():
        while True:
            try:
                s = connected()
                hear(s)
                tell(s, join('/', branch), [file])
                said = hear(s)
                if 'mount' in said:
                    begun.set()
                s.recv(1)
            except OSError:
                pass

    for _ in range(4):
        threading.Thread(target=again, daemon=True).start()
    begun.wait()
    ready()
elif what == 'mute':
    image, directory = rest
    fuse = mount(directory, 'mute')
    mute = threading.Event()
    threading.Thread(target=mute_server, args=(fuse, mute), daemon=True).start()
    file = os.open(directory + '/file', os.O_RDONLY)
    mute.set()
    s = connected()
    hear(s)
    tell(s, join('/', 'work'), [file])
    ready()
