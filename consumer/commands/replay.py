"""The pipeline on captured messages: no Kafka, the same outcomes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

import msgspec

from consumer.commands.capture_files import CaptureFormat, read_capture
from consumer.core.message import CapturedMessage
from consumer.core.outcomes import RequestResult
from consumer.core.partition import Partition, Pipeline
from consumer.telemetry.outcome_counts import Total

_encode: Final = msgspec.json.Encoder().encode


class OutputError(Exception):
    """What comes out cannot be written; the message says where and why."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"{name} cannot be written: {error.strerror}")


class Replay:
    """Feeds captures to the pipeline and writes what comes out.

    Args:
        pipeline: the core.
        records: where acceptance records go, one JSON object per line.
        outcomes: where the outcome of each message and request goes, if anywhere.

    """

    def __init__(
        self, pipeline: Pipeline, records: BinaryIO, outcomes: BinaryIO | None = None
    ) -> None:
        self.totals: Counter[Total] = Counter()
        self._pipeline = pipeline
        self._records = records
        self._outcomes = outcomes
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._messages = 0

    def run(
        self, names: Iterable[str], form: CaptureFormat, progress: Callable[[int], None]
    ) -> None:
        """Replay files in order, then close what is open as by its timeout.

        Args:
            names: files, `-` for standard input.
            form: how messages are written.
            progress: told how many bytes of the files each message took.

        Raises:
            CaptureError: a file cannot be read.
            OutputError: outcomes cannot be written.
            OSError: records cannot be written.

        """
        for name in names:
            for captured in read_capture(name, form, self._messages):
                self._messages += 1
                self._feed(captured.message)
                progress(captured.size)
        for partition in self._partitions.values():
            self._finish(partition)
        self._records.flush()
        if self._outcomes is not None:
            with _of_outcomes():
                self._outcomes.flush()

    def _feed(self, message: CapturedMessage) -> None:
        place = (message.topic(), message.partition())
        partition = self._partitions.get(place)
        if partition is None or message.offset() < partition.position:
            if partition is not None:  # Offsets that go back belong to another capture.
                self._finish(partition)
            partition = self._pipeline.partition(*place, message.offset())
            self._partitions[place] = partition
        result = partition.feed(message)
        self._write_outcome(
            "message", result.outcome, result.reason, partition, message.offset(), None
        )
        self._drain(partition)

    def _finish(self, partition: Partition) -> None:
        partition.close_all()
        self._drain(partition)

    def _drain(self, partition: Partition) -> None:
        for result in partition.drain():
            self._write_request(result, partition)

    def _write_request(self, result: RequestResult, partition: Partition) -> None:
        if result.record is not None:
            self._records.write(_encode(result.record) + b"\n")
        response = result.response
        self._write_outcome(
            "request",
            result.outcome,
            result.reason,
            partition,
            response.place[0],
            response.request_id,
        )

    def _write_outcome(
        self,
        kind: str,
        outcome: str,
        reason: str | None,
        partition: Partition,
        offset: int,
        request_id: str | None,
    ) -> None:
        self.totals[kind, outcome, reason, ()] += 1
        if self._outcomes is not None:
            line = {
                "kind": kind,
                "outcome": outcome,
                "reason": reason,
                "topic": partition.origin.topic,
                "partition": partition.origin.partition,
                "offset": offset,
                "request_id": request_id,
            }
            with _of_outcomes():
                self._outcomes.write(_encode(line) + b"\n")


@contextmanager
def _of_outcomes() -> Iterator[None]:
    """Name the file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise OutputError("outcomes", error) from error
