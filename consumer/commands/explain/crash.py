"""Finds the message that ends a process without a word: out of memory, or by a fault of a library.

The service's log cannot name such a message. Here another process reads the messages, and says
after each that it is still there.
"""

import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from multiprocessing.connection import Connection
from typing import Final

from msgspec import Struct

from consumer.core.adapters.registry import load_adapters
from consumer.core.message import CapturedMessage
from consumer.core.partition import Options, Pipeline

_PER_PROCESS: Final = 1000  # Messages; starting a process takes as long as reading ten thousand.

Read = Callable[[Options, list[CapturedMessage]], Iterator[object]]


class Crash(Struct, frozen=True):
    """A message that ended the process that read it.

    Attributes:
        message: the message.
        exit_code: of the process; negative for the number of a signal.

    """

    message: CapturedMessage
    exit_code: int


def read_all(options: Options, messages: list[CapturedMessage]) -> Iterator[object]:
    """Read messages of one partition as the service does; yield after each."""
    partition = Pipeline(options, load_adapters()).partition(
        messages[0].at_topic, messages[0].at_partition, messages[0].at_offset
    )
    for message in messages:
        partition.feed(message)
        yield partition.drain()


def find_crash(
    options: Options, messages: Iterable[CapturedMessage], read: Read = read_all
) -> Crash | None:
    """Return the first message that ends a process which reads the messages; None if none does.

    Args:
        options: settings of the core.
        messages: messages of one partition, in order.
        read: reads them, in the other process.

    """
    context, left = multiprocessing.get_context("spawn"), iter(messages)
    while some := list(islice(left, _PER_PROCESS)):
        receives, sends = context.Pipe(duplex=False)
        process = context.Process(target=_read, args=(read, options, some, sends), daemon=True)
        process.start()
        sends.close()
        done = 0
        try:
            while receives.recv_bytes():
                done += 1
        except EOFError:
            process.join()
        if process.exitcode:
            return Crash(some[min(done, len(some) - 1)], process.exitcode)
    return None


def _read(
    read: Read, options: Options, messages: list[CapturedMessage], progress: Connection
) -> None:
    try:
        for _ in read(options, messages):
            progress.send_bytes(b".")
    except Exception:  # noqa: BLE001 - the service would log it; here only the message matters.
        sys.exit(1)
