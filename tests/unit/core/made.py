"""What the tests of the core are made of: a pipeline, messages, events, statistics."""

from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pytest

from consumer.core import stream_time
from consumer.core.adapters.fastdeploy import FastDeployAdapter
from consumer.core.adapters.llamacpp import LlamaCppAdapter
from consumer.core.adapters.lmstudio import LMStudioAdapter
from consumer.core.adapters.mlx_vlm import MlxVlmAdapter
from consumer.core.adapters.protocol import SpecDecodeAdapter
from consumer.core.adapters.sglang import SGLangAdapter
from consumer.core.adapters.tensorrt_llm import TensorRTLLMAdapter
from consumer.core.adapters.tokenspeed import TokenSpeedAdapter
from consumer.core.adapters.unsupported import known_places
from consumer.core.adapters.vllm import VLLMAdapter
from consumer.core.bodies.body_reader import BodyReader
from consumer.core.bodies.documents import DocumentReader
from consumer.core.message import TIMESTAMP_CREATE_TIME, CapturedMessage, Headers
from consumer.core.outcomes import RequestResult
from consumer.core.partition import MessageResult, Options, Partition, Pipeline
from consumer.core.reassembly.limits import Limits
from consumer.core.response_event import Opened

ADAPTERS: Final[tuple[type[SpecDecodeAdapter], ...]] = (
    FastDeployAdapter,
    LlamaCppAdapter,
    LMStudioAdapter,
    MlxVlmAdapter,
    SGLangAdapter,
    TensorRTLLMAdapter,
    TokenSpeedAdapter,
    VLLMAdapter,
)
BEGIN_MS: Final = 1_767_225_600_000
BLOCKS_UNTIL_DECIDED: Final = stream_time.REACH + 2
"""Blocks of later messages after which the service believes that time has passed."""
RESPONSE_TYPE: Final = "org.kubeflow.serving.inference.response"
TOPIC: Final = "serving-responses"

Json = dict[str, Any]


def quicken_time(patch: pytest.MonkeyPatch, block_bits: int = 2) -> None:
    """Let time pass in shorter logs, of which more can be tried."""
    patch.setattr(stream_time, "BLOCK_BITS", block_bits)
    patch.setattr(stream_time, "REACH", 2)
    patch.setattr(stream_time, "MAX_BEHIND", 4)


def trace(number: int) -> str:
    """Return a `traceparent`."""
    return f"00-{number:032x}-{number:016x}-01"


TRACE: Final = trace(1)


def encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def body_reader(max_stats_bytes: int = 1 << 20) -> BodyReader:
    return BodyReader(DocumentReader(known_places(ADAPTERS), Limits().max_choices), max_stats_bytes)


def pipeline(limits: Limits | None = None, **options: Any) -> Pipeline:
    return Pipeline(Options(limits=limits or Limits(), **options), ADAPTERS)


def message(
    value: bytes | None,
    offset: int = 0,
    at: int = 0,
    *,
    headers: Headers | None = None,
    key: bytes | None = None,
) -> CapturedMessage:
    """Return a message of so many milliseconds after the beginning."""
    return CapturedMessage(
        at_topic=TOPIC,
        at_offset=offset,
        the_key=key,
        the_value=value,
        the_headers=headers,
        timestamp_type=TIMESTAMP_CREATE_TIME,
        timestamp_ms=BEGIN_MS + at,
    )


def opened(
    value: bytes | None, headers: Headers | None = None, **options: Any
) -> Opened | list[Opened]:
    """Open a message of a value, and return its events."""
    return pipeline(**options).opener.open(message(value, headers=headers))[1]


def fed(
    partition: Partition, values: Iterable[bytes | None], first: int = 0
) -> list[MessageResult]:
    """Feed values as messages of consecutive offsets, a millisecond apart."""
    return [
        partition.feed(message(value, offset, offset)) for offset, value in enumerate(values, first)
    ]


def outcomes_of(values: Iterable[bytes | None], **options: Any) -> list[RequestResult]:
    """Return the outcomes of the requests in a whole log."""
    partition = pipeline(**options).partition(TOPIC, 0, 0)
    fed(partition, values)
    partition.close_all()
    return partition.drain()


def short(result: RequestResult) -> str:
    """Return an outcome as one word: `incomplete(gap)`."""
    return f"{result.outcome}({result.reason})" if result.reason else str(result.outcome)


def short_message(result: MessageResult) -> str:
    return f"{result.outcome}({result.reason})" if result.reason else str(result.outcome)


def vllm_stats(accepted: int = 15, steps: int = 8) -> Json:
    """Return vLLM's metrics of a request; at most three drafts per step."""
    full, rest = divmod(accepted, 3)
    histogram = [steps - full - bool(rest), 0, 0, full]
    histogram[rest] += bool(rest)
    return {
        "speculative_decoding": {
            "mean_acceptance_length": 1 + accepted / steps,
            "draft_acceptance_rate": accepted / (3 * steps),
            "acceptance_histogram": histogram,
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": 3 * steps,
            "num_spec_tokens": 3,
        }
    }


def chunk(body_id: str | None = "c1", *, index: int = 0, finish: str | None = None) -> Json:
    """Return a chunk of content."""
    body: Json = {
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": "demo-8b",
        "choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": finish}],
    }
    return body if body_id is None else {"id": body_id, **body}


def last_chunk(body_id: str | None = "c1", accepted: int = 15) -> Json:
    """Return the usage chunk with statistics."""
    body: Json = {
        "object": "chat.completion.chunk",
        "choices": [],
        "usage": {"prompt_tokens": 11, "completion_tokens": 24},
        "metrics": vllm_stats(accepted),
    }
    return body if body_id is None else {"id": body_id, **body}


def whole(body_id: str = "c1", accepted: int = 15) -> Json:
    """Return a whole response."""
    return {
        "id": body_id,
        "object": "chat.completion",
        "model": "demo-8b",
        "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 24},
        "metrics": vllm_stats(accepted),
    }


def sse(*bodies: Json | str) -> bytes:
    """Return a stream of server-sent events."""
    texts = (body.encode() if isinstance(body, str) else encode(body) for body in bodies)
    return b"".join(b"data: " + text + b"\n\n" for text in texts)


def native(request_id: str = "r1", /, **members: Any) -> bytes:
    """Return a native event."""
    return encode({"request_id": request_id, **members})


def native_segment(piece: bytes, request_id: str = "r1", /, **members: Any) -> bytes:
    return native(request_id, body_base64=b64encode(piece).decode(), **members)


def cloudevent_headers(**attributes: str) -> Headers:
    """Return the headers of a binary CloudEvent as KServe writes them."""
    known = {
        "specversion": "1.0",
        "id": "e1",
        "source": "http://localhost:9081/",
        "type": RESPONSE_TYPE,
    }
    return [(f"ce_{name}", text.encode()) for name, text in {**known, **attributes}.items()]


def cloudevent(**members: Any) -> Json:
    """Return a structured CloudEvent."""
    return {
        "specversion": "1.0",
        "id": "e1",
        "source": "http://localhost:9081/",
        "type": RESPONSE_TYPE,
        **members,
    }
