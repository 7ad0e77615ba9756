"""AIPerf, whose record of each request must equal the service's; its raw export is read too."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.field.answers import Answer, Json, write_log
from tests.field.conftest import Topic
from tests.field.fake_server import FakeServer

pytestmark = [pytest.mark.field("aiperf"), pytest.mark.timeout(300)]

_REQUESTS = 20
_TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
}


def test_records(topic: Topic, program: Path, tmp_path: Path, server: FakeServer) -> None:
    """The server logs native events under the request id that AIPerf chose."""

    def log(request_id: str, answer: Answer) -> None:
        topic.send(json.dumps({"request_id": request_id, "body": answer.body, "final": True}))

    server.log = log
    theirs = {}
    for streamed in (False, True):
        for line in _profile(program, tmp_path, server, streamed, "profile_export.jsonl"):
            theirs[line["metadata"]["x_request_id"]] = line["spec_decode_acceptance"]
    assert len(theirs) == 2 * _REQUESTS
    records = topic.must_give(server.answers.numbers(), messages=2 * _REQUESTS)
    names = next(iter(theirs.values())).keys()
    assert {one["request_id"]: {name: one[name] for name in names} for one in records} == theirs


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_raw_export(
    topic: Topic, program: Path, tmp_path: Path, server: FakeServer, *, streamed: bool
) -> None:
    for line in _profile(program, tmp_path, server, streamed, "profile_export_raw.jsonl"):
        topic.send(json.dumps(line))
    topic.must_give(server.answers.numbers(), messages=_REQUESTS)


def _profile(
    program: Path, directory: Path, server: FakeServer, streamed: bool, name: str
) -> Iterable[Json]:
    """Run AIPerf with a tokenizer of one word, for it counts the server's tokens."""
    tokenizer, output = directory / "tokenizer", directory / f"output-{streamed}"
    tokenizer.mkdir(exist_ok=True)
    (tokenizer / "tokenizer.json").write_text(json.dumps(_TOKENIZER))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(kind))
    prompts = (json.dumps({"text": f"hello {number}"}) for number in range(_REQUESTS))
    command: list[str | Path] = [
        *(program / "bin" / "aiperf", "profile", "--url", server.url, "--model", "vllm"),
        *("--endpoint-type", "chat", "--custom-dataset-type", "single_turn"),
        *("--input-file", write_log(directory / "prompts.jsonl", prompts)),
        *("--tokenizer", tokenizer, "--use-server-token-count", "--ui", "none"),
        *("--request-count", str(_REQUESTS), "--concurrency", "2"),
        *("--export-level", "raw", "--artifact-dir", output),
        *(["--streaming"] if streamed else []),
    ]
    subprocess.run(command, check=True, capture_output=True, cwd=directory)
    return [json.loads(line) for line in (output / name).read_text().split("\n")[:-1]]
