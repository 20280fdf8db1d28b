"""What POSIX says of files and names, in the manner of pjdfstest."""

import errno
import os
import stat

import pytest

import holdfast


def fails(number, call, *arguments, **named):
    with pytest.raises(OSError) as caught:
        call(*arguments, **named)
    assert caught.value.errno == number, caught.value


def test_directories(volume):
    directory = volume / "d"
    directory.mkdir(0o750)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o750 and directory.is_dir()
    assert directory.stat().st_nlink == 2
    fails(errno.EEXIST, directory.mkdir)
    directory.mkdir(exist_ok=True)
    fails(errno.ENOENT, (volume / "no/d").mkdir)
    (volume / "a/b/c").mkdir(parents=True)
    fails(errno.ENOTEMPTY, (volume / "a").rmdir)
    fails(errno.ENAMETOOLONG, (volume / ("n" * 256)).mkdir)
    (volume / ("n" * 255)).mkdir()
    (volume / "f").touch()
    fails(errno.ENOTDIR, (volume / "f/x").mkdir)
    fails(errno.ENOTDIR, (volume / "f").rmdir)
    fails(errno.EISDIR, (volume / "d").unlink)
    (volume / "a").rmtree()
    assert not (volume / "a").exists()


def test_the_error_is_that_of_its_errno_and_names_the_path(volume):
    with pytest.raises(FileNotFoundError) as caught:
        (volume / "none").stat()
    assert caught.value.filename == "/none"
    assert caught.value.strerror == os.strerror(errno.ENOENT)
    with pytest.raises(IsADirectoryError):
        volume.root.read_bytes()
    with pytest.raises(NotADirectoryError):
        (volume / "f").write_text("x")
        (volume / "f/g").read_text()


def test_links(volume):
    (volume / "f").write_text("text")
    (volume / "hard").hardlink_to("f")
    assert (volume / "f").stat().st_nlink == 2 and (volume / "hard").samefile("f")
    fails(errno.EEXIST, (volume / "hard").hardlink_to, "f")
    (volume / "d").mkdir()
    fails(errno.EPERM, (volume / "e").hardlink_to, "d")
    link = volume / "d/link"
    link.symlink_to("../f")
    assert link.is_symlink() and link.read_text() == "text" and str(link.readlink()) == "../f"
    assert stat.S_ISLNK(link.lstat().st_mode) and link.lstat().st_size == 4
    assert link.resolve() == volume / "f"
    fails(errno.EINVAL, (volume / "f").readlink)
    (volume / "loop").symlink_to("loop")
    fails(errno.ELOOP, (volume / "loop").stat)
    assert not (volume / "loop").exists() and (volume / "loop").exists(follow_symlinks=False)
    (volume / "f").unlink()
    assert (volume / "hard").read_text() == "text"
    fails(errno.ENOENT, link.read_text)
    (volume / "f").unlink(missing_ok=True)


def test_renames(volume):
    (volume / "a").write_text("a")
    (volume / "b").write_text("b")
    fails(errno.EEXIST, (volume / "a").rename, "b", replace=False)
    (volume / "a").rename("b", exchange=True)
    assert (volume / "a").read_text() == "b"
    assert (volume / "a").rename("b") == volume / "b"
    assert (volume / "b").read_text() == "b" and not (volume / "a").exists()
    fails(errno.ENOENT, (volume / "a").rename, "c")
    (volume / "d").mkdir()
    fails(errno.EINVAL, (volume / "d").rename, "d/e")
    fails(errno.EISDIR, (volume / "b").rename, "d")
    fails(errno.ENOTDIR, (volume / "d").rename, "b")


def test_attributes(volume):
    f = volume / "f"
    f.write_text("x")
    f.chmod(0o4751)
    f.chown(7, 8)
    f.chmod(0o640)
    f.utime(-5, 1_000_000_000_123_456_789)
    found = f.stat()
    assert (found.st_mode, found.st_uid, found.st_gid) == (0o100640, 7, 8)
    assert (found.st_atime_ns, found.st_mtime_ns) == (-5, 1_000_000_000_123_456_789)
    assert found.st_mtime == pytest.approx(1_000_000_000.123456789)
    assert found.st_size == 1 and found.st_ino > 0 and found.st_blocks >= 0
    f.setxattr("user.colour", b"green\0")
    assert f.getxattr("user.colour") == b"green\0" and f.listxattr() == ["user.colour"]
    f.removexattr("user.colour")
    fails(errno.ENODATA, f.getxattr, "user.colour")


def test_bytes_that_are_no_text_are_names_all_the_same(volume):
    name = os.fsdecode(b"caf\xe9")
    (volume / name).write_text("x")
    assert [path.name for path in volume.root.iterdir()] == [name]
    assert (volume / name).read_text() == "x"


def test_a_full_volume_says_so():
    with holdfast.Volume.in_memory(16 << 20) as volume:
        fails(errno.ENOSPC, (volume / "f").write_bytes, bytes(32 << 20))
        (volume / "f").unlink(missing_ok=True)
        (volume / "g").write_bytes(b"x")


def test_walks_and_patterns(volume):
    for name in ("a/b/one.txt", "a/two.txt", "c/three.py", "a/b/d/four.txt"):
        (volume / name).parent.mkdir(parents=True, exist_ok=True)
        (volume / name).write_text(name)
    (volume / "a/up").symlink_to("/c")
    names = {str(path) for path in volume.root.glob("**/*.txt")}
    assert names == {"/a/b/one.txt", "/a/two.txt", "/a/b/d/four.txt"}
    assert {str(path) for path in (volume / "a").glob("*.txt")} == {"/a/two.txt"}
    assert {str(path) for path in volume.root.glob("*/up/*.py")} == {"/a/up/three.py"}
    assert {str(path) for path in volume.root.rglob("d")} == {"/a/b/d"}
    seen = {str(at): (sorted(directories), sorted(files)) for at, directories, files in volume.root.walk()}
    assert seen["/a"] == (["b"], ["two.txt", "up"]) and set(seen) == {"/", "/a", "/a/b", "/a/b/d", "/c"}
    order = [str(at) for at, _, _ in volume.root.walk(top_down=False)]
    assert order.index("/a/b/d") < order.index("/a/b") < order.index("/a") < order.index("/")


def test_paths_are_those_of_pathlib(volume):
    path = volume / "a" / "b.tar.gz"
    assert (path.name, path.stem, path.suffix, path.suffixes) == ("b.tar.gz", "b.tar", ".gz", [".tar", ".gz"])
    assert path.parent == volume / "a" and path.parts == ("/", "a", "b.tar.gz")
    assert path.with_name("c") == volume / "a/c" and path.with_suffix(".xz") == volume / "a/b.tar.xz"
    assert volume.path("//a") == volume / "a" == volume / "/a" and path.is_relative_to("/a")
    assert str(path.relative_to("/a")) == "b.tar.gz" and path.match("*.gz")
    assert len({volume / "x", volume / "x"}) == 1 and volume / "a" < volume / "b"
    with pytest.raises(TypeError):
        open(path)  # a path of the volume is none of the host
    other = holdfast.Volume.in_memory(64 << 20)
    assert other / "a" != volume / "a"
    other.close()
    (volume / "a").mkdir()
    assert (volume / "a/none/x").resolve() == volume / "a/none/x"
    with pytest.raises(FileNotFoundError):
        (volume / "a/none").resolve(strict=True)
    path.touch()
    fails(errno.EEXIST, path.touch, exist_ok=False)
    path.write_bytes(b"1")
    assert path.copy("copy").read_bytes() == b"1"
    path.replace_bytes(b"2")
    assert path.read_bytes() == b"2" and [p.name for p in path.parent.iterdir()] == ["b.tar.gz"]


def test_nothing_is_moved_to_another_volume_by_mistake(volume):
    (volume / "f").write_text("here")
    with holdfast.Volume.in_memory(64 << 20) as other:
        (other / "f").write_text("there")
        target = other / "g"
        for call in (volume / "f").rename, (volume / "f").replace, (volume / "g").hardlink_to:
            fails(errno.EXDEV, call, other / "f")
        fails(errno.EXDEV, volume.open_file, other / "f")
        assert [path.name for path in volume.root.iterdir()] == ["f"] and (other / "f").read_text() == "there"
        (volume / "f").chmod(0o640)
        assert (volume / "f").copy(target) == target and target.read_text() == "here"
        assert stat.S_IMODE(target.stat().st_mode) == 0o640 and not (volume / "g").exists()
        assert not (volume / "f").samefile(other / "f") and (volume / "f").samefile(volume / "f")


def test_a_file_that_is_replaced_keeps_mode_and_owner(volume):
    for name in ("f", "n" * 255, "\u00e9" * 127):
        path = volume / name
        path.write_text("old")
        path.chown(7, 8)
        path.chmod(0o4640)
        path.replace_bytes(b"new")
        found = path.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o4640, 7, 8)
        assert path.read_bytes() == b"new"
    (volume / "new").replace_bytes(b"new")
    assert len(list(volume.root.iterdir())) == 4


def test_touch_follows_links(volume):
    (volume / "f").write_text("x")
    (volume / "d").mkdir()
    for name in ("f", "d"):
        (volume / name).utime(0, 0)
        link = volume / f"to-{name}"
        link.symlink_to(name)
        link.utime(5, 5)
        link.touch()
        assert link.lstat().st_mtime_ns == 5 and link.stat().st_mtime_ns > 0
    (volume / "to-none").symlink_to("none")
    (volume / "to-none").touch()
    assert (volume / "none").is_file()
