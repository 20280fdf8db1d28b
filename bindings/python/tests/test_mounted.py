"""A volume that is mounted is reached through its mount, unless that is not wanted. $HOLDFAST is the program that mounts."""

import errno
import os
import subprocess

import pytest

import holdfast

PROGRAM = os.environ.get("HOLDFAST")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="$HOLDFAST names no program that mounts")


@pytest.fixture
def mounted(image, tmp_path):
    holdfast.Volume.create(image, 64 << 20).close()
    place = tmp_path / "mnt"
    place.mkdir()
    subprocess.run([PROGRAM, "mount", image, place], check=True)
    yield place
    subprocess.run([PROGRAM, "umount", place], check=True)


def test_a_mounted_volume_is_reached_through_its_mount_or_refused(image, mounted):
    with holdfast.Volume.open(image) as volume:
        assert volume.mounted_at == str(mounted)
        (volume / "from-python").write_bytes(b"through the mount")
        assert (mounted / "from-python").read_bytes() == b"through the mount"
    with pytest.raises(OSError) as refused:
        holdfast.Volume.open(image, through_mount=False)
    assert refused.value.errno == errno.EBUSY and str(mounted) in str(refused.value)


def test_branches_and_snapshots_of_a_mounted_volume(image, mounted):
    with holdfast.Volume.open(image) as volume:
        (volume / "f").write_text("before")
        before = volume.snapshot("before")
        (volume / "f").write_text("after")
        with before.open() as was:
            assert (was / "f").read_text() == "before" and was.mounted_at == str(mounted)
        fork = volume.fork("fork")
        assert [one.name for one in volume.branches()] == ["main", "fork"]
        with pytest.raises(OSError) as refused:
            fork.open()
        assert refused.value.errno == errno.EOPNOTSUPP and "holdfast mount" in str(refused.value)
        volume.branch().rollback("before", keep="later")
        assert (volume / "f").read_text() == "before" and (mounted / "f").read_text() == "before"
        volume.branch().rollback("later", keep=None)
        assert (volume / "f").read_text() == "after"
        with pytest.raises(FileExistsError):
            volume.snapshot("before")
        fork.delete()
        assert [one.name for one in volume.branch().snapshots()] == ["before", "later"]
        for one in volume.branch().snapshots():
            one.delete()
        assert volume.branch().snapshots() == [] and [one.name for one in volume.branches()] == ["main"]


def test_a_volume_that_is_open_here_is_in_no_mount(image):
    with holdfast.Volume.create(image, 64 << 20) as volume:
        assert volume.mounted_at is None
    with holdfast.Volume.open(image, through_mount=False) as volume:
        assert volume.mounted_at is None


def test_a_volume_that_is_closed_leaves_the_mount(image, mounted):
    with holdfast.Volume.open(image) as volume:
        (volume / "f").write_text("x")
    # While the variable lives.
    subprocess.run([PROGRAM, "umount", mounted], check=True)
    volume.close()
    with pytest.raises(OSError) as closed:
        (volume / "f").read_text()
    assert closed.value.errno == errno.EBADF
    subprocess.run([PROGRAM, "mount", image, mounted], check=True)
