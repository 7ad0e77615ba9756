"""What commands that look back read of a topic: a range of time, committed, up to its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.commands.topic_reader import MissingTopicError, TopicReader
from consumer.settings.settings import Settings
from tests.kafka.harness import SECONDS, Bench, whole

pytestmark = pytest.mark.kafka

_NOW = 1_767_225_600_000


def read(bench: Bench, topic: str, since: int | None = None) -> Iterator[bytes | None]:
    with TopicReader(Settings(bootstrap_servers=bench.bootstrap, group=bench.group)) as reader:
        yield from (message.value() for message in reader.read_all(topic, since))


def send(bench: Bench, numbers: range) -> None:
    """Send messages to the partitions in turn, one a second by their timestamps."""
    for number in numbers:
        value = str(number).encode()
        bench.send(value, partition=number % 3, timestamp=_NOW + 1000 * number)
    bench.flush()


@pytest.mark.parametrize(
    ("since", "expected"),
    [(None, range(9)), (_NOW + 4000, range(4, 9)), (_NOW + 9000, range(0))],
)
def test_a_range_of_time_is_read_of_all_partitions(
    bench: Bench, since: int | None, expected: range
) -> None:
    send(bench, range(9))

    found = sorted(int(value or b"") for value in read(bench, bench.input, since))
    assert found == list(expected)


def test_aborted_messages_are_not_read_nor_waited_for(bench: Bench) -> None:
    producer = bench.transactional_producer()
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
    ):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(bench.input, value, partition=number)
        producer.flush(SECONDS)
        end(SECONDS)

    assert list(read(bench, bench.input)) == [b"kept"] * 3


def test_an_open_transaction_does_not_hold_up_what_comes_before_it(bench: Bench) -> None:
    send(bench, range(9))
    producer = bench.transactional_producer()
    producer.begin_transaction()
    producer.produce(bench.input, b"open", partition=0)
    producer.flush(SECONDS)

    assert len(list(read(bench, bench.input))) == 9
    producer.abort_transaction(SECONDS)


def test_a_reader_commits_nothing_and_joins_no_group(bench: Bench) -> None:
    send(bench, range(9))

    assert len(list(read(bench, bench.input))) == 9
    assert {one.offset for one in bench.committed().values()} == {-1001}


def test_a_missing_topic_is_rejected(bench: Bench) -> None:
    with pytest.raises(MissingTopicError, match="'nowhere'"):
        list(read(bench, "nowhere"))


def test_a_report_has_every_record_of_the_last_day(bench: Bench, tmp_path: Path) -> None:
    bench.send_whole("old", partition=0, timestamp=_NOW)
    for number in range(30):
        bench.send(whole(f"r{number}"), f"r{number}", partition=number % 3)
    service = bench.start()
    records = bench.read_up()
    assert service.stop() == 0

    page = tmp_path / "report.html"
    done = bench.run_command("report", "-o", str(page))
    assert done.returncode == 0, done.stderr

    assert done.stderr.splitlines()[0].split() == [str(len(records) - 1), "records"]
    assert bench.output in page.read_text(encoding="utf-8")
