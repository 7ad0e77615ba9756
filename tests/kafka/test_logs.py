"""The log of a running service shows the outcome of a request."""

import signal

import pytest

from tests.kafka.harness import Bench, whole
from tests.unit.core.made import TRACE

pytestmark = pytest.mark.kafka


def test_a_signal_makes_a_running_service_log_each_outcome(bench: Bench) -> None:
    service = bench.start()
    service.wait_for("partitions_assigned")
    bench.send_whole("before")
    bench.record_of("before")

    service.process.send_signal(signal.SIGUSR1)
    service.wait_for("log_level_changed", new_level="debug")
    bench.send(whole("asked"), "asked", headers=[("traceparent", TRACE.encode())])
    bench.flush()
    line = service.wait_for("request_finished", request_id="asked")
    assert (line["outcome"], line["engine"], line["traceparent"]) == ("published", "vllm", TRACE)
    assert bench.record_of("asked").headers["traceparent"] == TRACE.encode()

    service.process.send_signal(signal.SIGUSR1)
    service.wait_for("log_level_changed", new_level="info")
    bench.send_whole("after")
    bench.record_of("after")
    assert service.stop() == 0
    logged = [line["request_id"] for line in service.lines("request_finished")]
    assert "asked" in logged
    assert not {"before", "after"} & set(logged)
