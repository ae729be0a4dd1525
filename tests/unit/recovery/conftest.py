"""Lets the tests of this folder be coroutines."""

from tests.unit.daemon.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
