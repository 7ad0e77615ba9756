"""The closed lists of outcomes and reasons, used by logs, metrics, dead letters and documents.

Every message has exactly one `MessageOutcome`, every request exactly one `RequestOutcome`. The
documents print the sentence beside each member.
"""

from enum import StrEnum
from typing import Self


class _Explained(StrEnum):
    """A string enumeration whose members have a sentence that explains them."""

    explanation: str

    def __new__(cls, value: str, explanation: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.explanation = explanation
        return member


class MessageOutcome(_Explained):
    """What became of one Kafka message."""

    ACCEPTED = "accepted", "The message has at least one response event that was used."
    SKIPPED = (
        "skipped",
        "The message is valid, but adds nothing to a request; the reason gives the cause.",
    )
    BAD_PAYLOAD = (
        "bad_payload",
        (
            "The service could not read the message. It writes a dead letter, unless "
            "dead_letters is off."
        ),
    )


class SkipReason(_Explained):
    """Why a valid message was skipped."""

    TOMBSTONE = "tombstone", "The message has no value: a delete marker of a compacted topic."
    REQUEST_EVENT = "request_event", "The event logs a request, not a response."
    UNRELATED_EVENT = (
        "unrelated_event",
        (
            "The event holds no response: a CloudEvent whose type is not one of response_types, or "
            "a log record of another kind."
        ),
    )
    UNRELATED_BODY = (
        "unrelated_body",
        (
            "The response is of an API without text generation that has no name here, or a gateway "
            "logged another page."
        ),
    )
    EMBEDDINGS = "embeddings", "The response is of an embeddings API."
    RERANK = "rerank", "The response is of a rerank API (Cohere, vLLM, TEI)."
    SCORE = "score", "The response is of a score API (vLLM, SGLang)."
    CLASSIFY = "classify", "The response is of a classification API."
    MODERATION = "moderation", "The response is of a moderation API."
    IMAGES = "images", "The response is of an image API."
    TRANSCRIPTION = "transcription", "The response is of a transcription or translation API."
    TOKENIZE = "tokenize", "The response is of a tokenizer."
    DETOKENIZE = "detokenize", "The response is of a tokenizer: text of token ids."
    MODELS = "models", "The response lists or describes models."
    SERVER_STATUS = "server_status", "The response states the health or version of a server."
    INFERENCE = (
        "inference",
        "The response is of classic inference: KServe's V1 or V2 protocol, TensorFlow Serving.",
    )
    TRITON_GENERATE = (
        "triton_generate",
        "The response is of Triton's generate extension, which carries no acceptance numbers.",
    )
    TGI_GENERATE = (
        "tgi_generate",
        "The response is of TGI's or a pipeline's generate API, without acceptance numbers.",
    )
    LMSTUDIO_CHAT = (
        "lmstudio_chat",
        "The response is of LM Studio's /api/v1/chat, which carries no acceptance numbers.",
    )
    OLLAMA = "ollama", "The response is of Ollama's own API, which carries no acceptance numbers."
    SKIPPED_BY_OPERATOR = (
        "skipped_by_operator",
        "The setting skip names the message; it was dead-lettered by reference.",
    )
    EMPTY_BATCH = "empty_batch", "The batch has no entries."
    KEEP_ALIVE = (
        "keep_alive",
        "The message has nothing of a response: a blank line, a comment or an empty chunk.",
    )
    DUPLICATE = (
        "duplicate",
        "The event is of an open request, and its sequence had been seen before.",
    )
    LATE_REPEAT = "late_repeat", "The request of the event had already finished."
    REPEATED_RESPONSE = "repeated_response", "The whole response had been seen before."
    ORPHAN_END = "orphan_end", "The event is the end marker of an unknown request."


class BadPayloadReason(_Explained):
    """Why a message could not be read."""

    EMPTY_VALUE = "empty_value", "The value is empty or white space."
    INVALID_JSON = "invalid_json", "The value starts like JSON, but is not valid JSON."
    TOO_DEEP = "too_deep", "The JSON is nested deeper than the decoder's limit."
    UNRECOGNISED_FORMAT = "unrecognised_format", "The value is neither JSON nor server-sent events."
    UNRECOGNISED_SHAPE = "unrecognised_shape", "The JSON is not a known envelope or response body."
    INVALID_EVENT = (
        "invalid_event",
        "The request id of an event is missing, empty or too long, or its body is impossible.",
    )
    INVALID_CLOUDEVENT = (
        "invalid_cloudevent",
        "A CloudEvent breaks a rule of version 1.0, or its id or source is too long.",
    )
    INVALID_HEADERS = (
        "invalid_headers",
        "The name of a header is not UTF-8, so that no header can be read.",
    )
    INVALID_BASE64 = "invalid_base64", "A base64 member is not valid base64."
    UNSUPPORTED_ENCODING = "unsupported_encoding", "The service does not support the compression."
    CORRUPT_ENCODING = "corrupt_encoding", "The compressed bytes cannot be decompressed."
    INFLATED_TOO_LARGE = "inflated_too_large", "The decompressed bytes exceed max_inflated_bytes."
    TOO_MANY_ENTRIES = (
        "too_many_entries",
        "The value has more entries than max_entries, or more than its bytes can be events.",
    )
    TOO_MANY_CHOICES = "too_many_choices", "The body has more choices than max_choices."
    TOO_DENSE = (
        "too_dense",
        "The text has more JSON values or lines than a response of its size can have.",
    )
    WRAPPED_TOO_DEEP = (
        "wrapped_too_deep",
        "The value is wrapped more than three times: in members of objects or in JSON strings.",
    )
    SCHEMA_REGISTRY_FRAME = (
        "schema_registry_frame",
        (
            "The value has a schema of a registry and is neither JSON nor text: Avro or Protobuf, "
            "which the service does not read. Let the producer or a connector write JSON."
        ),
    )
    NO_REQUEST_ID = "no_request_id", "A chunk of a stream does not say to which request it belongs."
    BODY_NOT_A_RESPONSE = (
        "body_not_a_response",
        "The envelope is known, but its body is not a response.",
    )


class RequestOutcome(_Explained):
    """What became of one request."""

    PUBLISHED = "published", "An acceptance record was published."
    NO_STATS = (
        "no_stats",
        "The request finished without acceptance numbers, which is common and not an error.",
    )
    UNATTRIBUTABLE = (
        "unattributable",
        "The numbers cannot be attributed to one generation: n > 1 or several prompts.",
    )
    MALFORMED_STATS = "malformed_stats", "The numbers are wrong or contradict each other."
    UNRECOGNISED_STATS = (
        "unrecognised_stats",
        "A declared place has statistics, but no adapter claims them.",
    )
    AMBIGUOUS_STATS = "ambiguous_stats", "Several adapters claim the response."
    FAILED_RESPONSE = "failed_response", "The server answered with an error."
    INCOMPLETE = (
        "incomplete",
        "The request did not finish, and the service has no numbers of it.",
    )


class NoStatsReason(_Explained):
    """Why a finished response has no numbers."""

    STREAM_WITHOUT_USAGE_CHUNK = (
        "stream_without_usage_chunk",
        "The stream has no usage chunk, which carries vLLM's numbers: include_usage is off.",
    )
    ENDPOINT_WITHOUT_STATS = (
        "endpoint_without_stats",
        "The API carries no numbers: Messages, and Responses (except in streams of llama.cpp).",
    )
    UNSUPPORTED_ENGINE = (
        "unsupported_engine",
        "The engine, which the detail names, reports no counts that an adapter could read.",
    )
    ABORTED = (
        "aborted",
        "The engine aborted the generation (finish_reason abort) and sent no numbers for it.",
    )
    ABSENT = "absent", "The server sent no numbers: speculation or its reporting is off."


class MalformedReason(_Explained):
    """Why acceptance numbers were rejected."""

    ADAPTER_FAILED = "adapter_failed", "The adapter raised an exception."
    NOT_JSON = "not_json", "The statistics are not valid JSON."
    TOO_LARGE = "too_large", "The statistics at one place exceed max_stats_bytes."
    WRONG_TYPE = "wrong_type", "A count is not a JSON integer, or a number is missing."
    NEGATIVE_COUNT = "negative_count", "A count is negative."
    OUT_OF_RANGE = (
        "out_of_range",
        "Without counts, the mean is below 1, the rate outside 0 to 1, or one is not finite.",
    )
    HISTOGRAM_LENGTH = (
        "histogram_length",
        "The histogram does not have num_spec_tokens + 1 buckets.",
    )
    HISTOGRAM_STEPS = (
        "histogram_steps",
        "The sum of the histogram differs from num_spec_steps.",
    )
    HISTOGRAM_ACCEPTED = (
        "histogram_accepted",
        "The weighted sum of the histogram differs from num_accepted_draft_tokens.",
    )
    ACCEPTED_EXCEEDS_DRAFTED = (
        "accepted_exceeds_drafted",
        "More draft tokens were accepted than proposed.",
    )
    EXCEEDS_SPEC_TOKENS = (
        "exceeds_spec_tokens",
        "A verify step accepted more than num_spec_tokens draft tokens.",
    )
    PER_STEP_LENGTH = (
        "per_step_length",
        "The length of a per-step array differs from num_spec_steps.",
    )
    PER_STEP_SUM = "per_step_sum", "The sum of a per-step array differs from its total."
    PER_STEP_EXCEEDS = (
        "per_step_exceeds",
        "A verify step accepted more draft tokens than it proposed.",
    )
    PLACES_DISAGREE = "places_disagree", "Two places of one response report different numbers."
    STEPS_WITHOUT_COUNTS = (
        "steps_without_counts",
        "There are no verify steps, but other counts are above zero.",
    )


class IncompleteReason(_Explained):
    """Why a request, or a published record, is not complete."""

    NO_TERMINATOR = "no_terminator", "The body ended without [DONE] or its API's own terminator."
    TRUNCATED = (
        "truncated",
        "The body ended in the middle of a line or of a JSON value, or could not be decompressed.",
    )
    EMPTY_BODY = "empty_body", "The body of the event is empty."
    IDLE_TIMEOUT = (
        "idle_timeout",
        (
            "No new event came for idle_timeout of stream time, or the log ended: the end of a "
            "capture, or a recreated topic."
        ),
    )
    DAMAGED = "damaged", "A chunk of the stream is not JSON."
    GAP = "gap", "An event of the sequence did not come."
    PARTITION_SILENT = (
        "partition_silent",
        "No message came on the partition for idle_timeout of wall time.",
    )
    BOUND = (
        "bound",
        "The partition had too many open requests; the service evicted the one idle longest.",
    )
    TOO_LONG = "too_long", "The first event lies more than max_reread messages behind."
    SEGMENT_OVERFLOW = (
        "segment_overflow",
        "Raw segments exceeded max_segment_bytes without a line end.",
    )
    FIRST_SKIPPED = "first_skipped", "The setting skip names the first event."
    RETENTION = "retention", "The first events were deleted from the topic before a restart."


class OddMember(_Explained):
    """Which optional member of an event had a value that the service ignored."""

    SEQUENCE = "sequence", "It is not a whole number from 0; the event counts in the log's order."
    FINAL = "final", "It is neither true nor false; the event does not end its attempt by itself."
    TIMESTAMP = (
        "timestamp",
        "It is not a time from 2015 to 2099; the Kafka timestamp stands in for it.",
    )
    ATTEMPT = "attempt", "It is not a whole number from 0; the events tell the attempts apart."
    MODEL = "model", "It is not text; the body's model stands in for it."
    INSTANCE = "instance", "It is not text; the record has no instance."
    ENDPOINT = "endpoint", "It is not text; the record has no endpoint."
    STATUS = "status", "It is not an HTTP status; the body tells whether the response failed."
    LABELS = "labels", "A label is neither text, number nor boolean; the others are kept."
