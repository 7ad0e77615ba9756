"""Write answers as an engine does, with its own response classes, and send them.

Arguments: bootstrap servers, topic, the directory with the engine's Python source, and a mode:
`vllm`, `vllm_batch` (what `vllm run-batch` writes; whole answers only) or `sglang`.
"""

import importlib
import json
import sys

from confluent_kafka import Producer
from pydantic import BaseModel
from stand_ins import import_only

VLLM_BATCH = "vllm.entrypoints.launchers.run_batch"
CLASSES = {
    "vllm": "vllm.entrypoints.openai.chat_completion.protocol",
    "sglang": "sglang.srt.entrypoints.openai.protocol",
}


def written(answer: dict[str, str]) -> str:
    """Return an answer as the engine writes it."""
    if answer["content_type"] == "text/event-stream":
        return streamed(answer["body"])
    response = classes.ChatCompletionResponse.model_validate_json(answer["body"])
    refuse_unknown(response)
    if mode == "vllm_batch":
        batch = importlib.import_module(VLLM_BATCH)
        data = batch.BatchResponseData(request_id=f"vllm-{answer['id']}", body=response)
        line = batch.BatchRequestOutput(id="vllm-1", custom_id="1", response=data, error=None)
        return line.model_dump_json()
    return json.dumps(response.model_dump(), ensure_ascii=False)


def streamed(body: str) -> str:
    """Return a stream as the engine writes it."""
    events = []
    for event in body.split("\n\n")[:-2]:
        text = event.removeprefix("data: ")
        chunk = classes.ChatCompletionStreamResponse.model_validate_json(text)
        refuse_unknown(chunk)
        if mode == "vllm":
            text = chunk.model_dump_json(exclude_unset=True, exclude_none=not chunk.choices)
        else:
            text = chunk.model_dump_json()
        events.append(f"data: {text}\n\n")
    return "".join([*events, "data: [DONE]\n\n"])


def refuse_unknown(model: BaseModel) -> None:
    """Raise for members that are not in the engine's classes under this name."""
    for name in ("metrics", "sglext"):
        statistics = getattr(model, name, None)
        for part in (model, statistics, getattr(statistics, "speculative_decoding", None)):
            if part is not None and part.model_extra:
                raise ValueError(f"not in {type(part).__name__}: {part.model_extra}")


bootstrap, topic, source, mode = sys.argv[1:]
engine = mode.split("_", maxsplit=1)[0]
import_only(
    source,
    engine,
    *CLASSES.values(),
    VLLM_BATCH,
    "vllm.entrypoints.generate.base.protocol",
    "vllm.entrypoints.serve.engine.protocol",
    "vllm.exceptions",
)
classes = importlib.import_module(CLASSES[engine])
producer = Producer({"bootstrap.servers": bootstrap})
for line in sys.stdin:
    producer.produce(topic, written(json.loads(line)).encode())
producer.flush()
