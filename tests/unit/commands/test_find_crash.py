"""A message that ends a process without a word is found."""

import os
import signal
from collections.abc import Iterator

import pytest

from consumer.commands.explain.crash import Crash, Read, find_crash, read_all
from consumer.core.message import CapturedMessage
from consumer.core.partition import Options
from tests.unit.core.made import native, whole

MESSAGES = [
    CapturedMessage(at_topic="t", at_offset=offset, the_value=native(f"r{offset}", body=whole()))
    for offset in range(5, 25)
]


def killed_at_17(_: Options, messages: list[CapturedMessage]) -> Iterator[object]:
    for message in messages:
        if message.at_offset == 17:
            os.kill(os.getpid(), signal.SIGSEGV)
        yield None


def fails_at_17(_: Options, messages: list[CapturedMessage]) -> Iterator[object]:
    for message in messages:
        if message.at_offset == 17:
            raise MemoryError
        yield None


@pytest.mark.parametrize(("read", "code"), [(killed_at_17, -signal.SIGSEGV), (fails_at_17, 1)])
def test_the_first_message_that_ends_the_process_is_named(read: Read, code: int) -> None:
    assert find_crash(Options(), MESSAGES, read) == Crash(MESSAGES[12], code)


def test_messages_that_the_service_reads_end_nothing() -> None:
    assert find_crash(Options(), MESSAGES, read_all) is None


def test_no_messages_end_nothing() -> None:
    assert find_crash(Options(), []) is None
