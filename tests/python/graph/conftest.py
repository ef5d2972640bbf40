import pytest


@pytest.fixture(scope="session")
def core():
    from quincunx._graph import load_core

    return load_core()
