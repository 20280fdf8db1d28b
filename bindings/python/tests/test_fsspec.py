"""`holdfast://` for fsspec."""

import errno
import gc

import fsspec
import pytest

import holdfast
from holdfast.fsspec import HoldfastFileSystem


def put(fs, files):
    for name, content in files.items():
        fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        fs.pipe(name, content)


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


def test_links_are_shown_and_not_gone_into(fs):
    put(fs, {"d/f": b"four", "e/g": b""})
    for name, target in (("file", "d/f"), ("up", "."), ("loop", "loop"), ("none", "d/none")):
        (fs.volume / name).symlink_to(target)
    found = {entry["name"]: (entry["type"], entry["size"]) for entry in fs.ls("")}
    assert found["file"] == ("link", 4) and found["up"][0] == found["loop"][0] == found["none"][0] == "link"
    assert fs.find("") == ["d/f", "e/g", "file", "loop", "none", "up"]
    # Who asks for one name asks for what it leads to.
    assert fs.info("file")["type"] == "file" and fs.isdir("up") and fs.exists("loop")
    fs.rm("up", recursive=True)
    assert fs.find("") == ["d/f", "e/g", "file", "loop", "none"]


def test_what_goes_while_it_is_listed_is_left_out(fs, monkeypatch):
    put(fs, {"d/a": b"", "d/b": b""})
    listed = holdfast.Path.iterdir

    def goes(path):
        found = list(listed(path))
        (path / "a").unlink()
        return found

    monkeypatch.setattr(holdfast.Path, "iterdir", goes)
    assert [entry["name"] for entry in fs.ls("d")] == ["d/b"]


def test_removals_take_patterns_and_depths(fs):
    put(fs, {"d/one": b"", "d/two": b"", "d/x/three": b"", "d/x/y/four": b"", "e/five": b""})
    fs.rm("d/t*")
    assert fs.find("d") == ["d/one", "d/x/three", "d/x/y/four"]
    fs.rm("d", recursive=True, maxdepth=2)
    assert fs.find("", withdirs=True) == ["d", "d/x", "d/x/y", "d/x/y/four", "e", "e/five"]
    with pytest.raises(FileNotFoundError):
        fs.rm("none")
    with pytest.raises(FileNotFoundError):
        fs.rm("n*")
    fs.rm(["d", "e/five"], recursive=True)
    assert fs.find("", withdirs=True) == ["e"]
    fs.rm("", recursive=True)
    assert fs.ls("") == []


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


def test_read_only_is_kept_whoever_else_has_the_volume(image):
    writer = fsspec.filesystem("holdfast", fo=str(image), create=64 << 20)
    put(writer, {"d/f": b"x"})
    reader = fsspec.filesystem("holdfast", fo=str(image), read_only=True)
    assert reader.volume is writer.volume and reader.cat("d/f") == b"x"
    for change in (
        lambda: reader.pipe("g", b"y"),
        lambda: reader.mkdir("e"),
        lambda: reader.makedirs("e/g"),
        lambda: reader.rm("d", recursive=True),
        lambda: reader.rm_file("d/f"),
        lambda: reader.rmdir("d"),
        lambda: reader.mv("d/f", "g"),
        lambda: reader.cp_file("d/f", "g"),
        lambda: reader.touch("d/f"),
        lambda: reader.open("d/f", "r+b"),
        lambda: reader.open("d/f", "ab"),
    ):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert writer.find("") == ["d/f"] and writer.cat("d/f") == b"x"
    writer.close()
    reader.close()
    # What is open to be read only is nothing for a writer.
    reader = fsspec.filesystem("holdfast", fo=str(image), read_only=True)
    for more in {}, {"branch": "main"}:
        with pytest.raises(OSError, match="read only") as refused:
            fsspec.filesystem("holdfast", fo=str(image), **more)
        assert refused.value.errno == errno.EBUSY
    reader.close()
    fsspec.filesystem("holdfast", fo=str(image)).close()


def test_a_filesystem_gives_back_what_it_had_and_nothing_else(image):
    old = fsspec.filesystem("holdfast", fo=str(image), create=64 << 20)
    old.volume.close()
    new = fsspec.filesystem("holdfast", fo=str(image), skip_instance_cache=True)
    assert new.volume is not old.volume
    old.close()
    new.pipe("f", b"x")
    new.close()
    holdfast.Volume.open(image).close()


def test_a_filesystem_that_is_forgotten_while_others_are_looked_up_does_not_wait(image):
    fs = fsspec.filesystem("holdfast", fo=str(image), create=64 << 20, skip_instance_cache=True)
    volume = fs.volume
    with holdfast.fsspec._locked():
        del fs
        gc.collect()
        assert not volume.closed
    assert volume.closed


def test_an_open_file_keeps_the_filesystem(image):
    file = fsspec.filesystem("holdfast", fo=str(image), create=64 << 20, skip_instance_cache=True).open("f", "wb")
    gc.collect()
    file.write(b"kept")
    file.close()
    del file
    gc.collect()
    with holdfast.Volume.open(image) as volume:
        assert (volume / "f").read_bytes() == b"kept"


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
    fs.volume.path("t").chmod(0o600)
    with fs.transaction:
        with fs.open("t", "wt") as file:
            file.write("replaced")
        for mode in ("ab", "r+b", "xb"):
            with pytest.raises(ValueError, match="whole files"):
                fs.open("t", mode)
        assert fs.cat("t") == b"whole"
    assert fs.cat("t") == b"replaced" and fs.info("t")["mode"] == 0o100600


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
