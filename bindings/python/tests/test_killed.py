"""What was acknowledged is there after a SIGKILL."""

import signal
import subprocess
import sys

import holdfast

RECORDS = """
import sys, holdfast
volume = holdfast.Volume.open(sys.argv[1])
with (volume / "records").open("ab") as file:
    number = file.tell() // 700
    file.truncate(number * 700)
    while True:
        path = volume / f"file-{number}"
        path.replace_bytes(str(number).encode())
        file.write(str(number).encode().ljust(700, b"."))
        file.fsync()
        number += 1
        print(number, flush=True)
"""


def test_every_acknowledged_record_is_there(image):
    holdfast.Volume.create(image, 128 << 20).close()
    said = 0
    for more in (1, 30, 77, 150):
        child = subprocess.Popen([sys.executable, "-c", RECORDS, image], stdout=subprocess.PIPE, text=True)
        for _ in range(more):
            said = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().splitlines()
        child.wait()
        said = int(rest[-1]) if rest and rest[-1].isdigit() else said
        with holdfast.Volume.open(image) as volume:
            content = (volume / "records").read_bytes()
            for number in range(said):
                assert content[number * 700:].startswith(str(number).encode().ljust(700, b".")), number
                assert (volume / f"file-{number}").read_text() == str(number)
            # Nobody wrote these.
            assert len(content) // 700 < said + 3 and not (volume / f"file-{said + 3}").exists()
    assert said > 200
