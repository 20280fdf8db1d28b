import pytest

import holdfast


@pytest.fixture
def image(tmp_path):
    return tmp_path / "volume.img"


@pytest.fixture
def volume():
    with holdfast.Volume.in_memory(64 << 20) as volume:
        yield volume
