"""What a partition holds: records, marks of transactions, and what of it may be seen."""

from enum import Enum, auto

from confluent_kafka import KafkaError

Place = tuple[str, int]  # Topic and partition.
Headers = list[tuple[str, bytes | None]]

_CREATE_TIME = 1


class Outcome(Enum):
    """What has become of a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Transaction:
    """What the broker knows of one transaction; its records point to it."""

    __slots__ = ("deadline", "outcome", "partitions")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.outcome = Outcome.OPEN
        self.partitions: list[Partition] = []


class Message:
    """A record as `confluent_kafka.Message` shows it; all of its readers share it.

    Attributes:
        transaction: the one that it was written in.
        control: whether it is the mark that ends a transaction, which no reader gets to see.
        epoch: of the leader that wrote it.

    """

    __slots__ = (
        "_content",
        "_error",
        "_offset",
        "_place",
        "_timestamp",
        "control",
        "epoch",
        "transaction",
    )

    def __init__(
        self,
        place: tuple[str | None, int],
        offset: int | None,
        content: tuple[bytes | None, bytes | None, Headers] = (None, None, []),
        timestamp: int = -1,
        *,
        error: KafkaError | None = None,
        transaction: Transaction | None = None,
        control: bool = False,
        epoch: int = 0,
    ) -> None:
        self._place = place
        self._offset = offset
        self._content = content
        self._timestamp = timestamp
        self._error = error
        self.transaction = transaction
        self.control = control
        self.epoch = epoch

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str | None:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int | None:
        return self._offset

    def key(self) -> bytes | None:
        return self._content[0]

    def value(self) -> bytes | None:
        return self._content[1]

    def headers(self) -> Headers | None:
        return self._content[2] or None

    def leader_epoch(self) -> int:
        return self.epoch

    def timestamp(self) -> tuple[int, int]:
        return _CREATE_TIME, self._timestamp


class Partition:
    """The log of one partition. Every offset from `start` to `end` has one entry.

    Attributes:
        start: the low watermark.
        end: the high watermark.
        epoch: of the leader.

    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.start = 0
        self.end = 0
        self.epoch = 0
        self._records: list[Message] = []
        self._open: dict[Transaction, int] = {}  # With the first offset of each.

    @property
    def stable(self) -> int:
        """The last stable offset: a reader of committed records sees nothing from there on."""
        if not self._open:
            return self.end
        return max(self.start, min(self._open.values()))

    def append(
        self,
        content: tuple[bytes | None, bytes | None, Headers],
        timestamp: int,
        transaction: Transaction | None = None,
        *,
        control: bool = False,
    ) -> Message:
        """Write a record."""
        message = Message(
            self.place,
            self.end,
            content,
            timestamp,
            transaction=transaction,
            control=control,
            epoch=self.epoch,
        )
        if transaction is not None and transaction not in self._open:
            self._open[transaction] = self.end
            transaction.partitions.append(self)
        self._records.append(message)
        self.end += 1
        return message

    def end_transaction(self, transaction: Transaction) -> None:
        """Write the mark that ends a transaction, which takes an offset."""
        self.append((None, None, []), -1, control=True)
        del self._open[transaction]

    def delete_below(self, offset: int) -> None:
        """Forget what lies below an offset."""
        del self._records[: max(0, offset - self.start)]
        self.start = max(self.start, offset)

    def cut_off(self, offset: int) -> None:
        """Lose what lies at an offset and above, as when a lagging replica is elected."""
        del self._records[offset - self.start :]
        self.end = offset

    def read(
        self, position: int, most: int, found: list[Message], *, uncommitted: bool = False
    ) -> int:
        """Add at most so many records to those found, and return where to go on."""
        end = self.end if uncommitted else self.stable
        for offset in range(position, end):
            if most <= 0:
                return offset
            record = self._records[offset - self.start]
            written = record.transaction
            if not record.control and (
                uncommitted or written is None or written.outcome is Outcome.COMMITTED
            ):
                found.append(record)
                most -= 1
        return max(position, end)

    def first_since(self, timestamp: int) -> int:
        """Return the offset of the first stable record that is not older; -1 if there is none."""
        for record in self._records[: self.stable - self.start]:
            if not record.control and record.timestamp()[1] >= timestamp:
                return record.offset() or 0
        return -1
