"""File objects are those of `io`."""

import array
import errno
import gc
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import threading
import warnings
import zipfile

import pytest

import holdfast


def test_types_are_those_of_open(volume):
    path = volume / "f"
    with path.open("wb", buffering=0) as raw:
        assert isinstance(raw, holdfast.File) and isinstance(raw, io.RawIOBase) and raw.writable() and not raw.readable()
    with path.open("wb") as file:
        assert isinstance(file, io.BufferedWriter)
    with path.open("rb") as file:
        assert isinstance(file, io.BufferedReader) and file.name == "/f"
    with path.open("r+b") as file:
        assert isinstance(file, io.BufferedRandom)
    with path.open() as file:
        assert isinstance(file, io.TextIOWrapper) and file.mode == "r"
    for wrong in ("", "rw", "rbt", "q", "b", "rr"):
        with pytest.raises(ValueError):
            path.open(wrong)
    with pytest.raises(ValueError):
        path.open("rb", encoding="utf-8")
    with pytest.raises(ValueError):
        path.open("r", buffering=0)


def test_modes(volume):
    path = volume / "f"
    with pytest.raises(FileNotFoundError):
        path.open("r+")
    with path.open("x") as file:
        file.write("one\n")
    with pytest.raises(FileExistsError):
        path.open("x")
    with path.open("a") as file:
        assert file.tell() == 4
        file.write("two\n")
    with path.open("r+") as file:
        assert file.readline() == "one\n"
        file.seek(0)
        file.write("ONE")
    assert path.read_text() == "ONE\ntwo\n" and list(path.open()) == ["ONE\n", "two\n"]
    with path.open("w+b") as file:
        file.write(b"\r\n")
        file.seek(0)
        assert file.read() == b"\r\n"
    assert path.read_text() == "\n" and path.read_text(newline="") == "\r\n"
    path.write_text("é", encoding="latin-1")
    assert path.read_bytes() == b"\xe9"


def test_raw_files(volume):
    with volume.open_file("f", "w+b", buffering=0) as raw:
        assert raw.write(b"hello") == 5 and raw.write(memoryview(b"abcdef")[::2].tobytes()) == 3
        assert raw.write(array.array("i", [1])) == 4 and raw.write(bytearray(b"x")) == 1
        assert raw.seek(-1, os.SEEK_END) == 12 and raw.tell() == 12 and raw.read() == b"x" and raw.read(5) == b""
        raw.seek(0)
        into = array.array("I", [0, 0])
        assert raw.readinto(into) == 8 and into.tobytes() == b"helloace"
        with pytest.raises((TypeError, BufferError, ValueError)):
            raw.readinto(b"1234")
        assert raw.pread(5, 0) == b"hello" and raw.pwrite(b"J", 0) == 1 and raw.pread(99, 0)[:5] == b"Jello"
        assert raw.truncate(3) == 3 and raw.stat().st_size == 3
        raw.allocate(0, 8192)
        raw.punch_hole(0, 4096)
        assert raw.stat().st_size == 8192 and raw.seek(0, os.SEEK_HOLE) == 0
        with pytest.raises(OSError):
            raw.fileno()
        with pytest.raises(TypeError):
            raw.write("text")
        raw.fsync()
        assert "flush" in raw.receipt()
    assert raw.closed
    for call in (raw.read, raw.tell, raw.fsync, raw.readable):
        with pytest.raises(ValueError):
            call()
    with (volume / "f").open("rb", buffering=0) as raw, pytest.raises(io.UnsupportedOperation):
        raw.write(b"x")
    with (volume / "f").open("wb", buffering=0) as raw, pytest.raises(io.UnsupportedOperation):
        raw.read(1)


def test_other_modules_take_them(volume):
    with (volume / "a.zip").open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("in", "zip")
    with (volume / "a.zip").open("rb") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("in") == b"zip"
    with (volume / "a.tar").open("wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    with (volume / "a.tar").open("rb") as file, tarfile.open(fileobj=file) as archive:
        assert archive.getnames() == ["empty"]
    with (volume / "a.json").open("w") as file:
        json.dump([1], file)
    with (volume / "a.json").open() as file:
        assert json.load(file) == [1]
    with (volume / "a.pickle").open("wb") as file:
        pickle.dump({"large": bytes(1 << 20)}, file, protocol=5)
    with (volume / "a.pickle").open("rb") as file:
        assert len(pickle.load(file)["large"]) == 1 << 20


def test_large_content(volume):
    data = os.urandom(20 << 20)
    (volume / "f").write_bytes(data)
    assert (volume / "f").read_bytes() == data
    with (volume / "f").open("rb") as file:
        assert file.read() == data


def test_threads_run_while_one_waits(volume):
    """A wait for a lock releases the interpreter: otherwise who gives it back could never run."""
    path = volume / "f"
    path.touch()
    holder, waiter = path.open("rb", buffering=0), path.open("rb", buffering=0)
    holder.lock()
    with pytest.raises(BlockingIOError):
        waiter.lock(blocking=False)
    has = threading.Event()

    def wait():
        waiter.lock(shared=True)
        has.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not has.wait(0.1)
    holder.unlock()
    assert has.wait(60)
    thread.join()
    waiter.close()
    holder.lock(blocking=False)
    holder.close()


def test_many_threads(volume):
    wrong = []

    def work(number):
        try:
            for n in range(100):
                path = volume / f"{number}-{n}"
                path.write_text(str(path) * 50)
                if n % 20 == 0:
                    path.fsync()
                assert path.read_text() == str(path) * 50
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(list(volume.root.iterdir())) == 600


def test_life_of_a_volume(image):
    volume = holdfast.Volume.create(image, 64 << 20)
    with pytest.raises(FileExistsError):
        holdfast.Volume.create(image, 64 << 20)
    with pytest.raises(OSError, match="in use by process") as busy:
        holdfast.Volume.open(image)
    assert busy.value.errno == errno.EBUSY
    file = (volume / "f").open("wb", buffering=0)
    file.write(b"kept")
    volume.close()
    volume.close()
    assert volume.closed
    with pytest.raises(OSError) as closed:
        file.write(b"x")
    assert closed.value.errno == errno.EBADF
    with pytest.raises(OSError):
        (volume / "f").read_bytes()
    with holdfast.Volume.open(image, read_only=True) as volume:
        assert (volume / "f").read_bytes() == b"kept" and volume.size == 64 << 20 and len(volume.uuid) == 16
        assert volume.space().total > volume.space().available > 0
        with pytest.raises(OSError) as refused:
            (volume / "g").touch()
        assert refused.value.errno == errno.EROFS
    with pytest.raises(FileNotFoundError):
        holdfast.Volume.open(image.with_name("none"))
    image.with_name("junk").write_bytes(b"junk" * 10000)
    with pytest.raises(OSError) as junk:
        holdfast.Volume.open(image.with_name("junk"))
    assert junk.value.errno == errno.EUCLEAN
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        holdfast.Volume.open(image)
        gc.collect()
    assert any(one.category is ResourceWarning for one in said)
    holdfast.Volume.open(image).close()


def test_an_interpreter_that_ends_closes_its_volumes(image):
    text = "import holdfast, sys; v = holdfast.Volume.create(sys.argv[1], 64 << 20); (v / 'f').write_text('kept')"
    subprocess.run([sys.executable, "-c", text, image], check=True)
    with holdfast.Volume.open(image) as volume:
        assert (volume / "f").read_text() == "kept"


def test_a_child_of_a_fork_has_nothing_and_harms_nothing(image):
    volume = holdfast.Volume.create(image, 64 << 20)
    (volume / "f").write_text("parent")
    file = (volume / "f").open("rb", buffering=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            numbers = []
            for call in (lambda: (volume / "f").stat(), volume.sync, file.tell, volume.branches):
                try:
                    call()
                except OSError as error:
                    numbers.append(error.errno)
            volume.close()
            file.close()
            del file
            status = 0 if numbers == [errno.EBADF] * 4 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (volume / "g").write_text("still the parent's")
    file.close()
    volume.close()
    with holdfast.Volume.open(image) as volume:
        assert (volume / "g").read_text() == "still the parent's"


def test_a_file_keeps_its_volume(image):
    file = holdfast.Volume.create(image, 64 << 20).open_file("f", "w")
    gc.collect()
    file.write("kept")
    file.close()
    del file
    gc.collect()
    with holdfast.Volume.open(image) as volume:
        assert (volume / "f").read_text() == "kept"


def test_what_is_in_buffers_is_written_when_the_volume_is_closed(image):
    with holdfast.Volume.create(image, 64 << 20) as volume:
        files = [(volume / "text").open("w"), (volume / "bytes").open("wb"), (volume / "both").open("w+b")]
        files[0].write("kept")
        files[1].write(b"kept")
        files[2].write(b"kept")
        gone = (volume / "gone").open("w")
        gone.write("kept")
        gone.close()
    with holdfast.Volume.open(image) as volume:
        assert {path.name: path.read_bytes() for path in volume.root.iterdir()} == dict.fromkeys(
            ("text", "bytes", "both", "gone"), b"kept"
        )


def test_a_close_that_cannot_write_what_is_in_buffers_says_so():
    volume = holdfast.Volume.in_memory(16 << 20)
    file = (volume / "f").open("wb", buffering=64 << 20)
    file.write(bytes(32 << 20))
    with pytest.raises(OSError) as full:
        volume.close()
    assert full.value.errno == errno.ENOSPC and volume.closed
    with pytest.raises(OSError):
        file.close()


def test_an_interpreter_that_ends_writes_what_is_in_buffers(image):
    text = "import holdfast, sys; v = holdfast.Volume.create(sys.argv[1], 64 << 20); f = (v / 'f').open('w'); f.write('kept')"
    subprocess.run([sys.executable, "-c", text, image], check=True)
    with holdfast.Volume.open(image) as volume:
        assert (volume / "f").read_text() == "kept"


def test_a_signal_ends_the_wait_for_a_lock(volume):
    path = volume / "f"
    path.touch()
    holder, waiter = path.open("rb", buffering=0), path.open("rb", buffering=0)
    holder.lock()

    def interrupt(*_):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptedError):
            waiter.lock()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    holder.unlock()
    waiter.lock(blocking=False)
