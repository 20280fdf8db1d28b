"""Does one thing again and again until it is sent SIGTERM, then prints how often and how long it took at most.
READY is a file that is made when it begins.
usage: stall.py read DIR READY     stats and reads the files of DIR that were there at the start
       stall.py create DIR READY   creates files in DIR, and removes them again when there are many
"""
import os, signal, sys, time
what, root, ready = sys.argv[1:]
stop = False
def end(*_):
    global stop
    stop = True
signal.signal(signal.SIGTERM, end)

def reads():
    names = sorted(os.listdir(root))
    while True:
        for name in names:
            path = os.path.join(root, name)
            def one():
                size = os.stat(path).st_size
                with open(path, "rb") as file:
                    if len(file.read()) != size: raise SystemExit(f"{path}: not as long as it says")
                    # The next read asks the server again, not the kernel's cache.
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            yield one

def creates():
    number = 0
    while True:
        path = os.path.join(root, f"made-{number}")
        yield lambda: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        number += 1
        if number % 5000 == 0:
            for old in range(number - 5000, number): os.unlink(os.path.join(root, f"made-{old}"))

open(ready, "w").close()
took, start = [], time.perf_counter()
for one in {"read": reads, "create": creates}[what]():
    before = time.perf_counter()
    one()
    took.append(time.perf_counter() - before)
    if stop: break
    # A little air: this watches, it is not the load.
    time.sleep(0.0005)
elapsed = time.perf_counter() - start
took.sort()
def ms(seconds): return f"{seconds * 1e3:.2f} ms"
print(f"  {what}: {len(took)} in {elapsed:.0f} s; p50 {ms(took[len(took) // 2])}, p99 {ms(took[len(took) * 99 // 100])},"
      f" p99.9 {ms(took[len(took) * 999 // 1000])}, longest stall {ms(took[-1])}")
