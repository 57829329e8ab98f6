"""What every test may use; fixtures of one kind of test live beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.harness import Site


@pytest.fixture
def site() -> Iterator[Site]:
    """A place for real processes. What is still there after the test is ended and removed."""
    with Site() as place:
        yield place
