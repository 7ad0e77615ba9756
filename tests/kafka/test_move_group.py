"""Moving to another group name with the script of helm/README.md."""

import re
import subprocess
import sys

import pytest

from tests.kafka.harness import Bench, request_ids, stream
from tests.paths import ROOT

pytestmark = pytest.mark.kafka

_DOCUMENT = ROOT / "helm" / "README.md"


def _script(bench: Bench, group: str) -> str:
    """Return the script of the document, for this test's names."""
    [script] = re.findall(
        r"<!-- tested: move-group -->\n\n```python\n(.*?)```", _DOCUMENT.read_text(), re.DOTALL
    )
    names = (bench.bootstrap, bench.input, bench.group, group)
    script, changed = re.subn(
        "(?m)^servers, topic, old, new = .*$", f"servers, topic, old, new = {names!r}", script
    )
    assert changed == 1
    return script


def test_requests_that_are_open_move_with_the_positions(bench: Bench) -> None:
    events = {f"open{number}": stream(f"open{number}") for number in range(6)}
    service = bench.start()
    for request_id, (first, *_) in events.items():
        bench.send(first, request_id)
    bench.read_up()
    bench.wait_until_committed()
    assert service.stop() == 0

    moved = f"{bench.group}-moved"
    said = subprocess.run(
        [sys.executable, "-c", _script(bench, moved)], capture_output=True, text=True, check=True
    ).stdout
    assert said.count("moved\n") == bench.partitions

    bench.group = moved
    again = bench.start()
    for request_id, (_, *rest) in events.items():
        bench.send_events(request_id, rest)
    records = bench.read_up()
    assert again.stop() == 0
    assert sorted(request_ids(records)) == sorted(events)
    assert all(record.json["stream_complete"] for record in records)
    assert not again.lines("checkpoint_ignored")
