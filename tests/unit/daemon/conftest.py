"""Lets the tests of this folder be coroutines: each runs in an event loop of its own, and not for ever."""

from __future__ import annotations

import asyncio
import inspect

import pytest

TEST_TIMEOUT_S = 120


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), TEST_TIMEOUT_S))
    return True
