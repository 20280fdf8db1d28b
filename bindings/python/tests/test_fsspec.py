"""`holdfast://` for fsspec."""

import errno
import gc

import fsspec
import pytest

import holdfast
from holdfast.fsspec import HoldfastFileSystem


@pytest.fixture
def fs(image):
    fs = fsspec.filesystem("holdfast", fo=str(image), create=64 << 20)
    yield fs
    fs.close()


def test_it_is_registered(fs):
    assert isinstance(fs, HoldfastFileSystem)
    assert fsspec.get_filesystem_class("holdfast") is HoldfastFileSystem


def test_files_and_directories(fs):
    fs.makedirs("a/b", exist_ok=True)
    fs.makedirs("a/b", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs("a/b")
    fs.pipe("a/b/one", b"1")
    fs.pipe({"a/two": b"22"})
    assert fs.cat("a/b/one") == b"1" and fs.cat_file("a/two", start=1) == b"2"
    assert fs.ls("a", detail=False) == ["a/b", "a/two"]
    assert {entry["name"]: entry["type"] for entry in fs.ls("holdfast://a")} == {"a/b": "directory", "a/two": "file"}
    assert fs.find("") == ["a/b/one", "a/two"] and fs.glob("a/**/o*") == ["a/b/one"]
    assert fs.isdir("a") and fs.isfile("a/two") and not fs.exists("none") and fs.size("a/two") == 2
    assert fs.info("")["type"] == "directory" and fs.du("a") == 3
    with pytest.raises(FileNotFoundError):
        fs.ls("none")
    with pytest.raises(FileNotFoundError):
        fs.ls("none", detail=False)
    fs.mv("a/two", "a/b/three")
    fs.cp_file("a/b/three", "c/d/copy")
    assert fs.cat("c/d/copy") == b"22"
    fs.copy("a", "e", recursive=True)
    assert fs.cat("e/b/one") == b"1"
    with pytest.raises(OSError):
        fs.rm("a")
    fs.rm("a", recursive=True)
    assert not fs.exists("a")
    fs.touch("t")
    assert fs.modified("t") >= fs.created("t") or fs.modified("t").year > 2000
    (fs.volume / "nowhere").symlink_to("none")
    assert fs.info("nowhere")["islink"]


def test_open_files(fs):
    with fs.open("f", "w") as file:
        file.write("text\n")
    with fs.open("f", "ab") as file:
        file.write(b"more")
    with fs.open("f") as file:
        assert file.read() == b"text\nmore"
    with fs.open("f", "rt") as file:
        assert file.readline() == "text\n"


def test_urls(image):
    fsspec.filesystem("holdfast", fo=str(image), create=64 << 20).close()
    with fsspec.open(f"holdfast://notes::{image}", "wt") as file:
        file.write("by url")
    with fsspec.open("holdfast://notes", fo=str(image)) as file:
        assert file.read() == b"by url"
    fs, path = fsspec.core.url_to_fs(f"holdfast://notes::{image}")
    assert (path, fs.cat(path)) == ("notes", b"by url")
    # All of them have one volume, and a branch is opened through it.
    fs.volume.fork("side")
    side = fsspec.filesystem("holdfast", fo=str(image), branch="side")
    assert side.cat("notes") == b"by url" and side.volume.branch().name == "side"
    HoldfastFileSystem.clear_instance_cache()
    side.close()
    fs.close()
    del fs, side, file
    gc.collect()
    holdfast.Volume.open(image).close()


def test_transactions(fs):
    with fs.transaction:
        with fs.open("t", "wb") as file:
            file.write(b"whole")
        assert not fs.exists("t")
    assert fs.cat("t") == b"whole"
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open("u", "wb") as file:
            file.write(b"never")
        1 / 0
    assert fs.ls("", detail=False) == ["t"]


def test_snapshots_are_read(fs, image):
    fs.pipe("f", b"one")
    fs.volume.snapshot("s")
    fs.pipe("f", b"two")
    with fs.volume.branch()["s"].open() as volume:
        old = fsspec.filesystem("holdfast", volume=volume)
        assert old.cat("f") == b"one" and fs.cat("f") == b"two"
        with pytest.raises(OSError) as refused:
            old.pipe("f", b"three")
        assert refused.value.errno == errno.EROFS
    with pytest.raises(ValueError):
        fsspec.filesystem("holdfast")
    with pytest.raises(FileNotFoundError):
        fsspec.filesystem("holdfast", fo=str(image) + ".none")


def test_an_open_volume_can_be_used(volume):
    fs = HoldfastFileSystem(volume=volume)
    fs.pipe("f", b"x")
    assert (volume / "f").read_bytes() == b"x"
    assert isinstance(volume, holdfast.Volume)
