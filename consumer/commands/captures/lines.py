"""Lines of a capture with their numbers, and the JSON that spreads over several of them."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

# A string that the end of its line cuts off reaches to there.
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[\[\]{}]')
_NEXT_DOCUMENT: Final = re.compile(rb"\s*[{\[]")
_OPENING: Final = (b"{", b"[")
_CLOSING: Final = (b"}", b"]")
_GOES_ON: Final = (b"{", b"[", b",", b":", b"}")
_INSIDE: Final = b'"{}[],:-0123456789tfnNI'  # What a line inside JSON may begin with.
_BETWEEN: Final = b" \t\r\n,"


class Block(NamedTuple):
    """A part of a capture.

    Attributes:
        line: number of its first line, from 1.
        data: its bytes.
        members: what the capture says of the message whose value it is; None if it may be more
            than a value.

    """

    line: int
    data: bytes
    members: dict[str, Any] | None = None


class Lines:
    """Lines that were numbered; a reader that has read too far puts back what it does not need.

    Attributes:
        number: of the line that was read last.

    """

    def __init__(self, numbered: Iterable[tuple[int, bytes]]) -> None:
        self.number = 0
        self._lines = iter(numbered)
        self._put_back: list[tuple[int, bytes]] = []

    def read(self) -> bytes | None:
        """Return the next line, with its end; None after the last one."""
        found = self._put_back.pop() if self._put_back else next(self._lines, None)
        if found is None:
            return None
        self.number, line = found
        return line

    def put_back(self, line: bytes) -> None:
        """Let the last line, or the rest of it, be read again."""
        if line:
            self._put_back.append((self.number, line))


class _Brackets:
    """Counts the open brackets of JSON that is read line by line."""

    def __init__(self, opened: bytes = b"") -> None:
        self._open = [opened] if opened else []
        self._last = opened  # The last character that is not white space.
        self.in_string = False

    def end_in(self, line: bytes, begin: int = 0) -> int | None:
        """Return where the document ends in its next line, from a place on; None if it does not."""
        for token in _STRING_OR_BRACKET.finditer(line, begin):
            text = token[0]
            if text in _OPENING:
                self._open.append(text)
            elif text in _CLOSING and self._open:
                self._open.pop()
                if not self._open:
                    return token.end()
            self.in_string = token[1] == b""
        self._last = line.rstrip()[-1:] or self._last
        return None

    def can_go_on_with(self, line: bytes) -> bool:
        """Return whether a line can be part of the document: not if it begins other data."""
        if not line.startswith(_OPENING):
            return line.lstrip()[:1] in _INSIDE
        return self._open == [b"["] and self._last in (b"[", b",")


def read_json(
    lines: Lines, line: bytes, is_message: Callable[[bytes], bool] = lambda _: False
) -> Iterator[Block]:
    """Read the JSON that begins with a line: a document, or captured messages in an array.

    A line that its writer cut off is a block by itself, so that the lines after it are read as
    ever. An array of messages may have any size, any other document is read as a whole.

    Args:
        lines: the lines after it.
        line: the line that was read last; it begins with a bracket.
        is_message: whether the first element of an array is a captured message.

    """
    number, text = lines.number, line.strip()
    is_array = text.startswith(b"[")
    if text.endswith(_CLOSING) and b"}{" not in text and not (is_array and text.endswith(b"}")):
        yield Block(number, line.rstrip(b"\r\n"))
        return
    brackets = _Brackets()
    end = brackets.end_in(line)
    if end is not None:
        yield from _read_line(lines, line, end)
    elif brackets.in_string or not text.endswith(_GOES_ON):
        yield Block(number, line.rstrip(b"\r\n"))
    elif is_array:
        yield from _read_array(lines, line, is_message)
    else:
        yield Block(number, _read_document(lines, line))


def _read_line(lines: Lines, line: bytes, first_end: int) -> Iterator[Block]:
    """Read the documents that a line holds one after another; what follows them is read next."""
    number, begin = lines.number, 0
    end: int | None = first_end
    while end is not None:
        yield Block(number, line[begin:end])
        begin = end
        end = _Brackets().end_in(line, begin) if _NEXT_DOCUMENT.match(line, begin) else None
    lines.put_back(line[begin:])


def _read_array(lines: Lines, line: bytes, is_message: Callable[[bytes], bool]) -> Iterator[Block]:
    number = lines.number
    following: bytes | None = line[line.index(b"[") + 1 :]
    while following is not None and not following.strip():
        following = lines.read()
    if following is None or not following.lstrip().startswith(b"{"):
        yield Block(number, b"[" + _read_document(lines, following or b"", b"["))
        return
    first_number, first = lines.number, _read_document(lines, following.lstrip())
    if not is_message(first):
        yield Block(number, b"[" + first + _read_document(lines, lines.read() or b"", b"["))
        return
    yield Block(first_number, first)
    while (following := lines.read()) is not None:
        element = following.lstrip(_BETWEEN)
        if element.startswith(_OPENING):
            yield Block(lines.number, _read_document(lines, element))
        elif element:
            lines.put_back(element.removeprefix(b"]"))
            return


def _read_document(lines: Lines, line: bytes, opened: bytes = b"") -> bytes:
    """Read to the end of the document that a line begins, or goes on with."""
    brackets, read = _Brackets(opened), []
    following: bytes | None = line
    while following is not None:
        end = brackets.end_in(following)
        if end is not None:
            read.append(following[:end])
            lines.put_back(following[end:])
            break
        read.append(following)
        following = lines.read()
        if following is not None and not brackets.can_go_on_with(following):
            lines.put_back(following)
            break
    return b"".join(read).rstrip(b"\r\n")
