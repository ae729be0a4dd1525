"""The meter of a broker's processor time."""

from __future__ import annotations

from bkdaemon.broker.cluster.meter import Meter


def test_the_meter_measures_the_time_since_its_last_update() -> None:
    clock, spent = [0.0], [0.0]
    meter = Meter(lambda: clock[0], lambda: spent[0])
    clock[0], spent[0] = 10.0, 5.0
    meter.look()
    assert meter.cpu == 50.0
    clock[0], spent[0] = 20.0, 6.0
    meter.look()
    assert meter.cpu == 10.0
