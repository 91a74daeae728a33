"""What every test of the store gets: a folder in memory, since none of them cuts the power."""

import pytest

from tests.support.processes import memory_folder


@pytest.fixture
def tmp_path():
    """In memory where the system has such a folder: thousands of stores come and go, each with its fsyncs."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def many_folders():
    """Gives one folder after the other, for a test that needs one for each of its examples."""
    with memory_folder() as folder:
        numbers = iter(range(1_000_000))

        def fresh():
            made = folder / str(next(numbers))
            made.mkdir()
            return made

        yield fresh
