"""Turns outcomes into messages for the output topics, and into log lines."""

from typing import Final, Literal

import msgspec

from consumer.core.dead_letters import (
    LETTER_OUTCOMES,
    digest,
    letter_of_message,
    letter_of_request,
    readable_headers,
)
from consumer.core.message import Headers, Message, trace_of
from consumer.core.outcomes import RequestResult
from consumer.core.output_messages import OutputMessage, output_of_letter, output_of_record
from consumer.core.partition import MessageResult
from consumer.core.records import Origin, model_of
from consumer.telemetry.clock import Clock
from consumer.telemetry.log_events import LogEvent, Logger
from consumer.telemetry.logging_setup import is_debug_enabled
from consumer.telemetry.rate_limiter import RateLimiter
from schemas import MessageOutcome, PublishedRecord, SkipReason

_FULL_LETTERS_PER_SECOND: Final = 20  # Or letters of a wrong topic would double the traffic.
_ALL_LETTERS: Final = "full letters"  # One limit for all reasons.
_MAX_AHEAD_MS: Final = 3_600_000  # Brokers reject a batch with a later timestamp.
# Not looked up for each event: see CONTRIBUTING.md.
_BY_OPERATOR: Final = SkipReason.SKIPPED_BY_OPERATOR
_BAD_PAYLOAD: Final = MessageOutcome.BAD_PAYLOAD


class OutcomeReporter:
    """Turns outcomes into output messages and log lines.

    Args:
        dead_letters: content of dead letters of messages.
        record_limit: maximum bytes of a message on the output topic.
        letter_limit: maximum bytes of a message on the dead-letter topic.
        log_payloads: whether log lines about bad messages carry the payload.
        clock: for rates.
        log: receives the log lines.

    """

    def __init__(
        self,
        *,
        dead_letters: Literal["full", "reference", "off"],
        record_limit: int,
        letter_limit: int,
        log_payloads: bool,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._dead_letters = dead_letters
        self._record_limit = record_limit
        self._letter_limit = letter_limit
        self._log_payloads = log_payloads
        self._clock = clock
        self._log = log
        self._lines = RateLimiter(clock)
        self._full_letters = RateLimiter(clock, max_admitted=_FULL_LETTERS_PER_SECOND, period_s=1.0)

    def report_message(
        self, message: Message, result: MessageResult, origin: Origin
    ) -> list[OutputMessage]:
        """Report a message that was not accepted; return its dead letter, if it has one."""
        by_operator = result.reason is _BY_OPERATOR
        if result.outcome is not _BAD_PAYLOAD and not by_operator:
            return []
        reason = str(result.reason)
        headers = readable_headers(message, reason)
        if by_operator:
            self._log_skipped(message, origin)
        else:
            self._log_bad(message, result, headers, origin)
        if self._dead_letters == "off":
            return []
        reference = (
            by_operator
            or self._dead_letters == "reference"
            or self._full_letters.admit(_ALL_LETTERS) is None
        )
        letter = letter_of_message(
            message, result.outcome, reason, result.detail, origin, headers, reference=reference
        )
        return [output_of_letter(letter, self._letter_limit)]

    def report_request(self, result: RequestResult, origin: Origin) -> list[OutputMessage]:
        """Report the outcome of a request; return its record or dead letter, if it has one."""
        if is_debug_enabled():
            self._log_finished(result, origin)
        for engine, error in result.failures:
            self._log_failure(engine, error, result, origin)
        if result.record is not None:
            if result.differing:
                self._log_differing(result.record.engine, result, origin)
            return [self._record(result.record, result, origin)]
        if result.outcome not in LETTER_OUTCOMES:
            return []
        self._log_rejected(result, origin)
        if self._dead_letters == "off":
            return []
        letter = letter_of_request(result, origin)
        return [output_of_letter(letter, self._letter_limit)]

    def _record(
        self, record: PublishedRecord, result: RequestResult, origin: Origin
    ) -> OutputMessage:
        output = output_of_record(record, result.response, self._record_limit)
        if output.timestamp > self._clock.wall() + _MAX_AHEAD_MS:
            output = msgspec.structs.replace(output, timestamp=0)
        if output.left_out:
            self._log.warning(
                LogEvent.RECORD_TOO_LARGE, **_where(result, origin), limit=self._record_limit
            )
        return output

    def _log_bad(
        self, message: Message, result: MessageResult, headers: Headers | None, origin: Origin
    ) -> None:
        reason = str(result.reason)
        suppressed = self._lines.admit(reason)
        if suppressed is None:
            return
        value, key = message.value() or b"", message.key()
        fields: dict[str, object] = {
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": message.offset(),
            "key": None if key is None else key[:128].decode("utf-8", "replace"),
            "size": len(value),
            "digest": digest(value),
            "reason": reason,
            "suppressed": suppressed,
        }
        known = {
            "request_id": result.request_id,
            "traceparent": trace_of(headers or []),
            "detail": result.detail,
            # The logger cuts it and masks credentials.
            "payload": value if self._log_payloads else None,
        }
        fields |= {name: value for name, value in known.items() if value is not None}
        self._log.warning(LogEvent.BAD_PAYLOAD, **fields)

    def _log_skipped(self, message: Message, origin: Origin) -> None:
        self._log.warning(
            LogEvent.MESSAGE_SKIPPED,
            topic=origin.topic,
            partition=origin.partition,
            offset=message.offset(),
            size=len(message.value() or b""),
        )

    def _log_finished(self, result: RequestResult, origin: Origin) -> None:
        record = result.record
        self._log.debug(
            LogEvent.REQUEST_FINISHED,
            **_where(result, origin),
            outcome=result.outcome,
            reason=result.reason,
            engine=record.engine if record else None,
            model=model_of(result.response),
        )

    def _log_rejected(self, result: RequestResult, origin: Origin) -> None:
        suppressed = self._lines.admit(f"{result.outcome}({result.reason})")
        if suppressed is not None:
            self._log.warning(
                LogEvent.STATS_REJECTED,
                **_where(result, origin),
                outcome=result.outcome,
                reason=result.reason,
                claims=list(result.claims),
                **({} if result.detail is None else {"detail": result.detail}),
                suppressed=suppressed,
            )

    def _log_differing(self, engine: str, result: RequestResult, origin: Origin) -> None:
        suppressed = self._lines.admit(f"statements {engine}")
        if suppressed is not None:
            self._log.warning(
                LogEvent.STATEMENT_DIFFERS,
                **_where(result, origin),
                engine=engine,
                fields=list(result.differing),
                suppressed=suppressed,
            )

    def _log_failure(self, engine: str, error: str, result: RequestResult, origin: Origin) -> None:
        suppressed = self._lines.admit(f"adapter {engine}")
        if suppressed is not None:
            self._log.error(
                LogEvent.ADAPTER_FAILED,
                **_where(result, origin),
                engine=engine,
                error=error,
                suppressed=suppressed,
            )


def _where(result: RequestResult, origin: Origin) -> dict[str, object]:
    response = result.response
    where: dict[str, object] = {
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": response.place[0],
        "last_offset": response.last_offset,
        "request_id": response.request_id,
    }
    context = response.context
    if context is not None and context.traceparent is not None:
        where["traceparent"] = context.traceparent
    return where
