"""A night on call: letters are found, explained and redriven, each exactly once."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from base64 import b64decode
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from confluent_kafka import Producer

from consumer.commands.dead_letters.actions import DeadLetters
from consumer.commands.dead_letters.letters import Letter, LetterFilter, LetterTopic
from consumer.commands.dead_letters.redrive import Redriver
from consumer.commands.dead_letters.sources import RedriveMessage
from consumer.commands.topic_reader import TopicReader
from consumer.core.dead_letters import letter_of_message
from consumer.core.message import CapturedMessage
from consumer.core.records import Origin
from consumer.kafka.administrator import Administrator
from consumer.kafka.clients import make_producer
from consumer.kafka.errors import FencedError
from consumer.settings.settings import Settings
from schemas import MessageOutcome
from tests.kafka.harness import SECONDS, Bench, Received, eventually, stream, whole

pytestmark = pytest.mark.kafka

_COMMAND: Final = (sys.executable, "-m", "consumer")
_OLD_KEY: Final = b"mean_acceptance_length"
_NEW_KEY: Final = b"mean_tokens_per_step"
_ADAPTER: Final = f"""
from msgspec import convert, json
from schemas import AcceptanceRecord

PLACE = "metrics.speculative_decoding"


class Adapter:
    engine = "new_engine"
    places = (PLACE,)

    @classmethod
    def can_adapt(cls, responses):
        return {_NEW_KEY.decode()!r} in json.decode(responses[0].stats[PLACE])

    @classmethod
    def adapt(cls, responses):
        stats = json.decode(responses[0].stats[PLACE])
        return AcceptanceRecord(
            engine=cls.engine,
            num_spec_steps=stats["num_spec_steps"],
            num_accepted_draft_tokens=stats["num_accepted_draft_tokens"],
            num_draft_tokens=stats["num_draft_tokens"],
        )
"""


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def letters(bench: Bench, *args: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return bench.run_command("dead-letters", *args, **settings)


def letter(bench: Bench, number: int = 1) -> dict[str, Any]:
    """Wait for the letters of the service, and return the last one's content."""
    found: list[Received] = eventually(
        lambda: got if len(got := bench.letters()) >= number else [], f"{number} letters"
    )
    return found[-1].json


def only_letter(bench: Bench, *, wait: bool = False) -> Letter:
    with TopicReader(settings_of(bench)) as reader:
        messages = reader.read_all(bench.dead, wait_for_transactions=wait)
        [found] = LetterTopic(messages).select(LetterFilter())
    return found


def leave_letter(
    bench: Bench,
    value: bytes,
    key: str = "key",
    *,
    settings: dict[str, str] | None = None,
    **options: Any,
) -> None:
    """Run a service until it has written the letter of a message."""
    service = bench.start(**(settings or {}))
    bench.send(value, key, **options)
    bench.flush()
    letter(bench)
    assert service.stop() == 0


def source(letter: dict[str, Any]) -> list[str]:
    names = ("source_topic", "source_partition", "source_first_offset")
    return [str(letter[name]) for name in names]


def fix_adapters(bench: Bench, directory: Path) -> None:
    """Install an adapter that knows the new key."""
    info = directory / "new_engine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: new-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[spec_decode_adapter]\nnew_engine = fixed:Adapter\n")
    (directory / "fixed.py").write_text(_ADAPTER)
    bench.variables["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(directory), os.environ.get("PYTHONPATH")])
    )


def home_made(name: str) -> bytes:
    """Return an event of a fleet that names the members of a native event in its own way."""
    members = json.loads(whole(name))
    return json.dumps({"trace": name, "answer": members["body"]}).encode()


PATHS: Final = "request_id=trace,body=answer"


def settings_of(bench: Bench) -> Settings:
    return Settings(
        bootstrap_servers=bench.bootstrap,
        group=bench.group,
        output_topic=bench.output,
        dead_letter_topic=bench.dead,
    )


def input_messages(bench: Bench) -> list[CapturedMessage]:
    """Return all messages of the input topic, once their transactions are decided."""
    with TopicReader(settings_of(bench)) as reader:
        return list(reader.read_all(bench.input, wait_for_transactions=True))


def test_a_renamed_key_is_listed_explained_and_after_the_fix_published_under_the_same_id(
    bench: Bench, tmp_path: Path
) -> None:
    bench.start()
    for event in stream("night"):
        bench.send(event.replace(_OLD_KEY, _NEW_KEY), "night")
    bench.flush()
    found = letter(bench)

    (group,) = lines(letters(bench, "--json"))
    assert (group["kind"], group["outcome"], group["count"]) == ("request", "unrecognised_stats", 1)
    assert group["example"] == ":".join(source(found))

    (explained,) = lines(bench.run_command("explain", *source(found), "--json"))
    request = explained["entries"][0]["request"]
    assert [part["event"] for part in request["parts"]] == ["chunk"] * 5 + ["end"]
    assert request["outcome"] == "unrecognised_stats"
    (vllm,) = (one for one in request["adapters"] if one["engine"] == "vllm")
    assert not vllm["claims"]
    assert _NEW_KEY.decode() in vllm["places"][0]["members"]

    too_early = letters(bench, "--redrive", "--yes")
    assert too_early.returncode == 1
    assert "the outcome is still unrecognised_stats" in too_early.stdout

    fix_adapters(bench, tmp_path / "fix")
    redriven = letters(bench, "--redrive", "--yes")
    assert redriven.returncode == 0, redriven.stderr
    assert "1 redriven, 0 failed" in redriven.stderr
    record = bench.record_of("night").json
    assert (record["engine"], record["record_id"]) == ("new_engine", found["record_id"])
    (again,) = lines(bench.run_command("explain", *source(found), "--json"))
    assert again["entries"][0]["request"]["record"] == record

    once_more = letters(bench, "--redrive", "--yes")
    assert once_more.returncode == 0
    assert "1 letter was redriven before" in once_more.stderr
    assert len(bench.records()) == 1
    (group,) = lines(letters(bench, "--json"))
    assert (group["count"], group["redriven"]) == (1, 1)


def test_a_message_is_produced_again_as_it_was_and_its_record_comes_out(bench: Bench) -> None:
    service = bench.start()
    bench.send(home_made("day"), "key", partition=2, headers=[("authorization", b"Bearer x")])
    bench.flush()
    found = letter(bench)
    assert found["reason"] == "unrecognised_shape"
    assert service.stop() == 0
    bench.start(paths=PATHS)

    planned = letters(bench, "--redrive", paths=PATHS)
    assert (planned.returncode, len(input_messages(bench))) == (0, 1)
    assert "nothing was sent; add --yes" in planned.stderr
    redriven = letters(bench, "--redrive", "--yes", paths=PATHS)
    assert redriven.returncode == 0, redriven.stderr

    record = bench.record_of("day").json
    assert (record["source_partition"], record["source_first_offset"]) == (2, 1)
    first, second = input_messages(bench)
    mark = ("acceptance-redrive", found["record_id"].encode())
    as_it_was = {"at_offset": 1, "the_headers": [*(first.the_headers or []), mark]}
    assert second == msgspec.structs.replace(first, **as_it_was)
    shown = bench.run_command("tail", "--from", "earliest", "--count", "1", "--json")
    assert lines(shown) == [record]


def test_a_message_whose_source_is_gone_comes_from_its_letter_without_masked_headers(
    bench: Bench,
) -> None:
    headers: list[tuple[str, str | bytes | None]] = [("authorization", b"x"), ("kept", b"y")]
    leave_letter(bench, home_made("old"), partition=0, headers=headers)
    bench.delete_below(0, 1)

    redriven = letters(bench, "--redrive", "--yes", paths=PATHS)

    assert redriven.returncode == 0, redriven.stderr
    assert "the header authorization was masked" in redriven.stdout
    (message,) = input_messages(bench)
    assert message.the_value == home_made("old")
    assert message.the_headers is not None
    assert [name for name, _ in message.the_headers] == ["kept", "acceptance-redrive"]


def test_a_reference_whose_source_is_gone_is_not_redriven_and_named(bench: Bench) -> None:
    leave_letter(bench, home_made("old"), partition=0, settings={"dead_letters": "reference"})
    bench.delete_below(0, 1)

    redriven = letters(bench, "--redrive", "--yes", paths=PATHS)

    assert redriven.returncode == 1
    assert (
        "the source message was deleted, and the letter does not hold all of its bytes"
        in redriven.stdout
    )
    assert bench.ends()[0] == 1


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ({"source_topic": "nowhere"}, "Unknown topic"),
        ({"source_partition": 9}, "has partitions 0 to"),
        ({"source_topic": "no\0name"}, "is not a valid topic name"),
    ],
)
def test_a_message_whose_topic_is_gone_is_not_redriven_and_named(
    bench: Bench, gone: dict[str, Any], why: str
) -> None:
    bad = CapturedMessage(at_topic=bench.input, the_value=home_made("old"))
    origin = Origin("test", bench.input, 0, {})
    outcome = MessageOutcome.BAD_PAYLOAD
    written = letter_of_message(bad, outcome, "invalid_json", None, origin, [], reference=False)
    producer = Producer({"bootstrap.servers": bench.bootstrap})
    producer.produce(bench.dead, msgspec.json.encode(msgspec.structs.replace(written, **gone)))
    assert producer.flush(SECONDS) == 0

    redriven = letters(bench, "--redrive", "--yes", paths=PATHS)

    assert redriven.returncode == 1
    assert why in redriven.stdout
    assert "no letter can be redriven" in redriven.stderr


def test_of_two_redrives_at_once_the_first_is_stopped(bench: Bench) -> None:
    leave_letter(bench, b"no event", partition=0)
    settings = settings_of(bench)
    cluster = Administrator(settings).inspect(SECONDS)
    found = only_letter(bench)
    ready = RedriveMessage(bench.input, 0, b"key", b"again", [], 0, "message")

    one, two = Redriver(settings, cluster), Redriver(settings, cluster)
    assert two.send(found, ready) is None
    with pytest.raises(FencedError, match="another process redrives"):
        one.send(found, ready)

    assert [message.value() for message in input_messages(bench)] == [b"no event", b"again"]


def test_a_stopped_redrive_reports_the_reason_and_the_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_letter(bench, home_made("left"), partition=0)
    settings = msgspec.structs.replace(
        settings_of(bench),
        topics=(bench.input,),
        paths={"request_id": "trace", "body": "answer"},
    )
    send_all = Redriver.send_all

    def another_begins(one: Redriver, ready: Any) -> list[str | None]:
        Redriver(settings, Administrator(settings).inspect(SECONDS))
        return send_all(one, ready)

    monkeypatch.setattr(Redriver, "send_all", another_begins)

    with TopicReader(settings) as reader, pytest.raises(FencedError, match="another process"):
        DeadLetters(settings, reader, LetterFilter(), as_json=False).redrive(yes=True)

    assert "0 redriven, 1 remaining; run the command again" in capsys.readouterr().err


def test_a_letter_that_the_client_rejects_is_reported_and_the_next_is_sent(bench: Bench) -> None:
    leave_letter(bench, b"no event", partition=0)
    settings = settings_of(bench)
    found = only_letter(bench)
    redriver = Redriver(settings, Administrator(settings).inspect(SECONDS))
    large = RedriveMessage(bench.input, 0, b"key", b"x" * (2 << 20), [], 0, "message")
    small = RedriveMessage(bench.input, 0, b"key", b"again", [], 0, "message")

    taken, refused, last = redriver.send_all([(found, small), (found, large), (found, small)])

    assert "too large" in str(refused)
    assert (taken, last, redriver.sent) == (None, None, 2)
    values = [message.value() for message in input_messages(bench)]
    assert values == [b"no event", b"again", b"again"]


def test_many_letters_are_redriven_once_each_and_in_order(bench: Bench) -> None:
    service = bench.start()
    names = [f"many-{number}" for number in range(250)]
    for name in names:
        bench.send(home_made(name), "key", partition=0)
        bench.send(whole(f"between-{name}"), "key", partition=0)
    bench.flush()
    letter(bench, len(names))
    assert service.stop() == 0

    redriven = letters(bench, "--redrive", "--yes", paths=PATHS)

    assert f"{len(names)} redriven, 0 failed" in redriven.stderr
    again = [json.loads(one.value() or b"") for one in input_messages(bench)[2 * len(names) :]]
    assert [one["trace"] for one in again] == names
    assert (
        f"{len(names)} letters were redriven before" in letters(bench, "--redrive", "--yes").stderr
    )


def test_a_notice_behind_an_open_transaction_is_waited_for(bench: Bench) -> None:
    """Otherwise a letter would be redriven twice while the service writes others."""
    leave_letter(bench, b"no event", partition=0)
    settings = settings_of(bench)
    found = only_letter(bench)
    slow = make_producer(settings)
    slow.init_transactions(SECONDS)
    slow.begin_transaction()
    slow.produce(bench.dead, b"{}", partition=found.place[1])
    assert slow.flush(SECONDS) == 0
    ready = RedriveMessage(bench.input, 0, b"key", b"again", [], 0, "message")
    redriver = Redriver(settings, Administrator(settings).inspect(SECONDS))
    assert redriver.send(found, ready) is None

    hidden = only_letter(bench)
    ending = threading.Timer(1, slow.abort_transaction)
    ending.start()
    seen = only_letter(bench, wait=True)
    ending.join()

    assert (hidden.redriven, seen.redriven) == (False, True)


def test_a_capture_of_letters_replays_to_what_the_service_made_of_them(
    bench: Bench, tmp_path: Path
) -> None:
    bench.start()
    for one, other in zip(stream("bad"), stream("good"), strict=True):
        bench.send(one.replace(_OLD_KEY, _NEW_KEY), "bad", partition=0)
        bench.send(other, "good", partition=0)
    bench.send(b"{", "key", partition=1)
    bench.flush()
    letter(bench, 2)

    done = letters(bench, "--capture", str(tmp_path / "night.jsonl"))

    assert done.returncode == 0
    assert "wrote 7 messages of 2 letters to" in done.stderr
    captured = [json.loads(line) for line in (tmp_path / "night.jsonl").read_text().splitlines()]
    assert [one["offset"] for one in captured] == [0, 2, 4, 6, 8, 10, 0]
    assert b64decode(captured[-1]["value_b64"]) == b"{"
    replayed = bench.run_command("replay", str(tmp_path / "night.jsonl"))
    assert "1  request unrecognised_stats" in replayed.stderr
    assert "1  message bad_payload(invalid_json)" in replayed.stderr


def test_show_prints_one_letter_without_payload_unless_asked(bench: Bench) -> None:
    bench.start()
    bench.send(b'{"prompt": "canary\xc2\x9b2J"', "key", partition=1)
    bench.flush()
    place = ":".join(source(letter(bench)))

    shown = letters(bench, "--show", place)
    with_payload = letters(bench, "--show", place, "--payload")
    others = letters(bench, "--kind", "request")
    nowhere = letters(bench, "--show", f"{bench.input}:0:5")

    assert json.loads(shown.stdout)["reason"] == "invalid_json"
    assert "canary" not in shown.stdout
    assert "canary?2J" in with_payload.stdout
    assert nowhere.returncode == 2
    assert "no dead letter" in nowhere.stderr
    assert others.stderr == "no dead letter matches; the topic holds 1 other letter\n"


def test_show_finds_the_letter_of_any_message_of_a_request_and_not_of_one_between(
    bench: Bench,
) -> None:
    bench.start()
    for one, other in zip(stream("bad"), stream("good"), strict=True):
        bench.send(one.replace(_OLD_KEY, _NEW_KEY), "bad", partition=0)
        bench.send(other, "good", partition=0)
    bench.flush()
    letter(bench)

    mine, between = (letters(bench, "--show", f"{bench.input}:0:{n}") for n in (2, 3))

    assert json.loads(mine.stdout)["request_id"] == "bad"
    assert (between.returncode, between.stdout) == (2, "")


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        (0, "was deleted: the partition begins at offset 1"),
        (9, "the partition ends at 3"),
        (2, "transaction marker"),
    ],
)
def test_explain_says_why_there_is_no_message(bench: Bench, offset: int, why: str) -> None:
    bench.send(whole("gone"), partition=0)
    bench.flush()
    producer = make_producer(settings_of(bench))
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(bench.input, whole("a"), partition=0)
    producer.commit_transaction(SECONDS)
    eventually(lambda: bench.ends()[0] == 3, "the mark of the transaction")
    bench.delete_below(0, 1)

    done = bench.run_command("explain", bench.input, "0", str(offset))

    assert done.returncode == 2
    assert why in done.stderr


def test_explain_waits_for_the_end_of_a_stream_that_others_are_between(bench: Bench) -> None:
    events = stream("long", 40)
    for number, event in enumerate(events):
        bench.send(event, partition=0)
        bench.send(whole(f"other-{number}"), partition=0)
    bench.flush()

    done = bench.run_command("explain", f"{bench.input}:0:20")

    assert done.returncode == 0
    assert f"42 events, offsets 0 to {2 * len(events) - 2}, complete" in done.stdout
    assert "vllm claims it: metrics.speculative_decoding" in done.stdout
    assert re.search(r"^request +published", done.stdout, re.MULTILINE)


def test_tail_follows_letters_and_records_until_it_is_interrupted(bench: Bench) -> None:
    bench.start()
    outcomes = ("--outcome", "published", "--outcome", "bad_payload")
    command = [*_COMMAND, "tail", "--from", "earliest", *outcomes]
    with subprocess.Popen(
        command, env=bench.environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("time, UTC ")
        bench.send_whole("one")
        bench.send(b"{", partition=0)
        bench.flush()
        seen = sorted(process.stdout.readline().split()[1:3] for _ in range(2))
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    assert seen == [["bad_payload(invalid_json)", "-"], ["published", "vllm"]]


def test_commands_that_look_do_not_disturb_the_service(bench: Bench) -> None:
    """Not even a static member, whose settings the commands share."""
    member = {"kafka_consumer_group_instance_id": "only"}
    service = bench.start(**member)
    bench.send_whole("one", partition=0)
    bench.wait_until_committed()

    def positions() -> list[tuple[int, str | None]]:
        return [(one.offset, one.metadata) for one in bench.committed().values()]

    before = positions()

    assert bench.run_command("explain", bench.input, "0", "0", **member).returncode == 0
    assert letters(bench, **member).returncode == 0

    assert positions() == before
    bench.send_whole("two", partition=0)
    bench.record_of("two")
    assert not [line for line in service.lines() if line["level"] in ("warning", "error")]
    assert len(service.lines("partitions_assigned")) == 1


def test_a_topic_that_is_not_there_is_refused_by_name(bench: Bench) -> None:
    done = bench.run_command("tail", output_topic="nowhere")

    assert done.returncode == 2
    assert "'nowhere'" in done.stderr
