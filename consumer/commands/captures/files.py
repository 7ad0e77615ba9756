"""Files of captured messages, in any form in which tools write them and people paste them."""

import gzip
import io
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from consumer.commands.captures.console import key_alone, place_in, read_with_place, split_key
from consumer.commands.captures.har import har_responses, may_be_har
from consumer.commands.captures.http_output import (
    RecentIds,
    is_event_field,
    is_page,
    is_status,
    read_headers,
    read_page,
    read_stream,
)
from consumer.commands.captures.lines import Block, Lines, read_json
from consumer.commands.captures.messages import (
    CaptureError,
    CaptureFormat,
    is_message,
    may_be_message,
    message_of,
    parse_json,
)
from consumer.commands.captures.terminal_output import without_notes
from consumer.core.message import CapturedMessage

STANDARD_INPUT: Final = "-"
_GZIP: Final = b"\x1f\x8b"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def read_capture(
    name: str,
    form: CaptureFormat,
    first_offset: int = 0,
    track: Callable[[BinaryIO], BinaryIO] = lambda file: file,
) -> Iterator[CapturedMessage]:
    """Read the messages of one file.

    Args:
        name: path of the file, `-` for standard input. Gzip is decompressed; of a file that is
            one value, only where its name ends with `.gz`.
        form: format of the file; `auto` recognises each part of it.
        first_offset: offset of the first message, where the capture states none.
        track: wraps the opened file, to see how much of it is read.

    Raises:
        CaptureError: the file cannot be read, or a part of it does not have the format.

    """
    try:
        with _opened(name, track, inflate=form != "file" or name.endswith(".gz")) as file:
            if form == "file":
                yield CapturedMessage(at_offset=first_offset, the_value=file.read())
                return
            offset = first_offset
            for block in _blocks(file, form):
                for message in _messages(f"{name}:{block.line}", block, form, offset):
                    yield message
                    offset += 1
    except (OSError, EOFError, zlib.error) as error:
        raise CaptureError(f"{name}: {getattr(error, 'strerror', None) or error}") from error


def consecutive_run(
    read: Callable[[], Iterable[CapturedMessage]], find: Callable[[int, CapturedMessage], bool]
) -> tuple[CapturedMessage, Iterator[CapturedMessage]] | None:
    """Return a message, and the messages around it in its partition, as far as offsets rise.

    Another capture begins where they go back. The capture is read twice, so that it may have any
    size.

    Args:
        read: returns the messages of the capture.
        find: whether a message, with its number from 1, is the one.

    """
    begins: dict[tuple[str, int], tuple[int, int]] = {}  # First number and last offset of a run.
    for number, message in enumerate(read(), 1):
        partition = message.at_topic, message.at_partition
        begin, last_offset = begins.get(partition, (number, -1))
        if message.at_offset <= last_offset:
            begin = number
        begins[partition] = begin, message.at_offset
        if find(number, message):
            return message, _run(islice(read(), begin - 1, None), message)
    return None


def _run(messages: Iterable[CapturedMessage], target: CapturedMessage) -> Iterator[CapturedMessage]:
    last_offset = -1
    for message in messages:
        if (message.at_topic, message.at_partition) == (target.at_topic, target.at_partition):
            if message.at_offset <= last_offset:
                return
            last_offset = message.at_offset
            yield message


@contextmanager
def _opened(
    name: str, track: Callable[[BinaryIO], BinaryIO], *, inflate: bool
) -> Iterator[BinaryIO]:
    with ExitStack() as stack:
        if name == STANDARD_INPUT:
            if sys.stdin is None:
                raise CaptureError(f"{name}: standard input is closed")
            source: io.BufferedReader[Any] = io.BufferedReader(cast("Any", sys.stdin.buffer))
            stack.callback(source.detach)  # Standard input stays open.
        else:
            source = stack.enter_context(Path(name).open("rb"))
        is_gzip = inflate and source.peek(len(_GZIP)).startswith(_GZIP)
        file = track(source)
        yield cast("BinaryIO", stack.enter_context(gzip.open(file))) if is_gzip else file


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; PowerShell writes UTF-16."""
    first = file.readline()
    if first.startswith(_UTF_16):
        text = (first + file.read()).decode("utf-16", "replace")
        yield from io.BytesIO(text.encode())
    else:
        yield first.removeprefix(BOM_UTF8)
        yield from file


def _blocks(file: BinaryIO, form: CaptureFormat) -> Iterator[Block]:
    """Divide a file into blocks, most of which are one message."""
    if form == "values":
        for number, value in enumerate(file, 1):
            yield Block(number, value.rstrip(b"\r\n"), {})
    elif form == "auto":
        yield from _recognised(Lines(without_notes(_lines(file))))
    else:
        lines = Lines(enumerate(_lines(file), 1))
        while (line := lines.read()) is not None:
            if line.strip():
                yield from read_json(lines, line, is_message)


def _recognised(lines: Lines) -> Iterator[Block]:
    has_keys, response_ids = False, RecentIds()
    while (line := lines.read()) is not None:
        if not line.strip():
            continue
        if is_status(line):
            if (body := read_headers(lines)) is not None:
                yield body
        elif (place := place_in(line)) is not None:
            yield read_with_place(lines, place)
        elif not is_event_field(line) and (found := split_key(line)) is not None:
            has_keys, (members, value) = True, found
            for block in _value(lines, value, response_ids):
                yield block._replace(members=members)
        elif has_keys and (key := key_alone(line)) is not None:  # As kcat shows a tombstone.
            yield Block(lines.number, b"", {"the_key": key, "the_value": None})
        else:
            yield from _value(lines, line, response_ids)


def _value(lines: Lines, line: bytes, response_ids: RecentIds) -> Iterator[Block]:
    if is_event_field(line):
        yield read_stream(lines, line, response_ids, _begins_other)
    elif line.lstrip().startswith((b"{", b"[")):
        yield from read_json(lines, line, is_message)
    elif is_page(line):
        yield read_page(lines, line)
    else:
        yield Block(lines.number, line.rstrip(b"\r\n"))


def _begins_other(line: bytes) -> bool:
    """Return whether a line after server-sent events begins data of another kind."""
    if is_event_field(line):
        return False
    return (
        is_status(line)
        or place_in(line) is not None
        or bool(split_key(line))
        or (line.startswith(b"{") and is_message(line))
    )


def _messages(
    where: str, block: Block, form: CaptureFormat, offset: int
) -> Iterator[CapturedMessage]:
    """Return the messages of a block: more than one of an array or an export."""
    if block.members is not None:
        yield _bare(block, offset)
        return
    may_be = form != "auto" or may_be_message(block.data) or may_be_har(block.data)
    members = parse_json(block.data) if may_be else None
    entries = members if isinstance(members, list) and members else [members]
    found = [message_of(where, entry, form, offset + n) for n, entry in enumerate(entries)]
    if all(found):
        yield from filter(None, found)
    elif form != "auto":
        raise CaptureError(
            f"{where}: not a captured message of the format {form!r}; correct it, or omit --format"
        )
    elif (responses := har_responses(where, block.line, members)) is not None:
        for n, response in enumerate(responses):
            yield _bare(response, offset + n)
    else:
        yield _bare(block, offset)


def _bare(block: Block, offset: int) -> CapturedMessage:
    value = None if block.data.strip() == b"null" else block.data
    stated: dict[str, Any] = {"at_offset": offset, "the_value": value}
    return CapturedMessage(**(stated | (block.members or {})))
