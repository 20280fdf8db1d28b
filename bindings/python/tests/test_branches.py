"""Snapshots, forks, rollback and differences."""

import errno
from datetime import UTC, datetime, timedelta

import pytest

import holdfast


def test_snapshots_and_rollback(volume):
    f = volume / "f"
    f.write_text("one")
    before = volume.snapshot("before")
    assert abs(before.created - datetime.now(UTC)) < timedelta(minutes=5)
    with pytest.raises(FileExistsError):
        volume.snapshot("before")
    f.write_text("two")
    with before.open() as was:
        assert (was / "f").read_text() == "one"
        with pytest.raises(OSError) as refused:
            (was / "f").write_text("x")
        assert refused.value.errno == errno.EROFS
    main = volume.branch()
    main.rollback("before", keep="after")
    assert f.read_text() == "one"
    assert [one.name for one in main.snapshots()] == ["before", "after"]
    main["after"].rename("later")
    main["later"].delete()
    with pytest.raises(KeyError):
        main["later"]
    with pytest.raises(FileNotFoundError):
        volume.branch("none")
    with pytest.raises(FileNotFoundError):
        main.rollback("none")


def test_forks(volume):
    (volume / "f").write_text("one")
    fork = volume.fork("trial")
    with fork.open() as trial:
        (trial / "f").write_text("tried")
        with pytest.raises(OSError) as open_already:
            fork.open()
        assert open_already.value.errno == errno.EBUSY
    assert (volume / "f").read_text() == "one" and [one.name for one in volume.branches()] == ["main", "trial"]
    volume.branch("main").promote(fork)
    assert (volume / "f").read_text() == "tried"
    fork = volume.snapshot("base").fork("late")
    (volume / "g").write_text("changed since")
    with pytest.raises(BlockingIOError):
        volume.branch().promote(fork)
    fork.rename("later")
    assert volume.branch("later") == fork
    volume.branch().promote(fork, keep="was", replace=True)
    assert not (volume / "g").exists()
    dead = volume.fork("dead")
    dead.delete()
    assert dead not in volume.branches()


def test_differences(volume):
    (volume / "f").write_text("one")
    (volume / "gone").write_text("x")
    before = volume.snapshot("before")
    (volume / "f").rename("renamed")
    (volume / "gone").unlink()
    (volume / "new").write_text("x")
    changes = set(volume.diff(before, volume.branch()))
    assert holdfast.Change("renamed", "f", "renamed") in changes
    assert holdfast.Change("removed", "gone", None) in changes
    assert holdfast.Change("created", None, "new") in changes


def test_a_branch_is_opened_by_name(image):
    with holdfast.Volume.create(image, 64 << 20) as volume:
        (volume / "f").write_text("main")
        volume.snapshot("s")
        volume.fork("b")
    with holdfast.Volume.open(image, branch="b") as volume:
        (volume / "f").write_text("b")
    with holdfast.Volume.open(image, branch="main", snapshot="s") as volume:
        assert (volume / "f").read_text() == "main"
    with holdfast.Volume.open(image, branch="b") as volume:
        assert (volume / "f").read_text() == "b" and volume.branch().name == "b"
