"""Samples in Prometheus' text format."""

from __future__ import annotations

from bkdaemon.prometheus import Sample, process_samples, render


def test_the_type_of_a_metric_is_written_once_before_its_first_sample() -> None:
    samples = [
        Sample("a_total", "counter", 3, (("dir", "/l0"),)),
        Sample("a_total", "counter", 4, (("dir", "/l1"), ("kind", "x"))),
        Sample("b", "gauge", 0.5),
    ]
    assert render(iter(samples)).splitlines() == [
        "# TYPE a_total counter",
        'a_total{dir="/l0"} 3',
        'a_total{dir="/l1",kind="x"} 4',
        "# TYPE b gauge",
        "b 0.5",
    ]


def test_label_values_are_escaped() -> None:
    text = render(iter([Sample("a", "gauge", 1, (("dir", 'C:\\a "b"\nc'),))]))
    assert text.splitlines()[1] == 'a{dir="C:\\\\a \\"b\\"\\nc"} 1'


def test_large_counters_and_truth_values_are_written_as_numbers() -> None:
    samples = [Sample("bytes", "counter", 2**49 + 1), Sample("up", "gauge", True), Sample("down", "gauge", False)]
    values = [line for line in render(iter(samples)).splitlines() if not line.startswith("#")]
    assert values == ["bytes 562949953421313", "up 1", "down 0"]


def test_the_process_reports_its_processor_time_and_memory() -> None:
    found = {sample.name: sample for sample in process_samples()}
    assert found["process_cpu_seconds_total"].value > 0
    assert found["process_cpu_seconds_total"].kind == "counter"
    assert found["process_max_resident_memory_bytes"].value > 1 << 20, "in bytes, not in kilobytes"
