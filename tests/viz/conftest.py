"""The recorded run that tests of pictures share."""

import pytest
from support.pictures import Ran, ran


@pytest.fixture(scope="session")
def two_stages(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("ran"))
