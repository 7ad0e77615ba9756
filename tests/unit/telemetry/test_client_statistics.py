"""Statistics of librdkafka are decoded once for all receivers, and never end a poll."""

import pytest

from consumer.telemetry.client_statistics import (
    BrokerStatistics,
    ClientStatistics,
    statistics_callback,
)


def test_each_receiver_gets_what_the_service_uses() -> None:
    first: list[ClientStatistics] = []
    second: list[ClientStatistics] = []
    statistics_callback(first.append, second.append)(
        '{"name": "rdkafka#consumer-1", "type": "consumer", "replyq": 7, "topics": {"t": {}},'
        ' "brokers": {"b:1/1": {"nodeid": 1, "state": "UP", "rxidle": 5, "tx": 7}}}'
    )
    expected = ClientStatistics(
        "consumer", replyq=7, brokers={"b:1/1": BrokerStatistics(nodeid=1, state="UP", rxidle=5)}
    )
    assert first == second == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"type": "consumer", "name":"a"b"}',
        '{"type": "consumer", "brokers": 7}',
        '{"type": "consumer", "brokers": {"b": {"state": 7}}}',
    ],
)
def test_statistics_of_another_shape_are_ignored(text: str) -> None:
    received: list[ClientStatistics] = []
    statistics_callback(received.append)(text)
    assert received == []
