"""Decodes the statistics that librdkafka reports for each client."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec
from msgspec import Struct

ClientName = Literal["consumer", "producer"]


class _Window(Struct, frozen=True):
    p99: int = 0


class BrokerStatistics(Struct, frozen=True):
    """One connection, under the names of librdkafka: `rxidle` and `rtt` in microseconds."""

    nodeid: int = -1
    source: str = ""
    state: str = ""
    rxidle: int = -1  # Time since the last answer; -1 without one.
    rtt: _Window = _Window()
    throttle: _Window = _Window()  # Milliseconds.
    txbytes: int = 0
    rxbytes: int = 0
    txerrs: int = 0
    rxerrs: int = 0
    req_timeouts: int = 0


class ClientStatistics(Struct, frozen=True):
    """The statistics that this service uses; the rest is skipped.

    All partitions of a consumer share one queue, whose length is `replyq`.
    """

    type: ClientName
    replyq: int = 0
    msg_cnt: int = 0
    brokers: dict[str, BrokerStatistics] = {}


_decode: Final = msgspec.json.Decoder(ClientStatistics).decode


def statistics_callback(
    *receivers: Callable[[ClientStatistics], None],
) -> Callable[[str], None]:
    """Return a callback for librdkafka that decodes statistics once, for several receivers."""

    def on_statistics(text: str) -> None:
        try:
            statistics = _decode(text)
        except msgspec.MsgspecError:
            return  # An unknown version of librdkafka must not end a poll.
        for receive in receivers:
            receive(statistics)

    return on_statistics
