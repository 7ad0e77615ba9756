"""What programs print around the data: curl's progress, its headers, notes of kcat and Kafka."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

# Progress replaces itself after a carriage return: percentages and sizes, three times, the speed.
_PROGRESS: Final = re.compile(
    rb"\r *\d+(?: +[\d.]+[kMGTP]?){7}(?: +(?:[-\d]+:[-\d]+:[-\d]+|\d+d(?: \d+h)?)){3}"
    rb" +[\d.]+[kMGTP]?"
)
_NOTE_AT_END: Final = re.compile(
    rb"(?:[{}] \[\d+ bytes data\]|% Reached end of topic \S+ \[\d+\] at offset \d+(?:: exiting)?)"
    rb"\r?\n?$"
)
_CURL: Final = re.compile(
    rb"\s*% Total\s+% Received|[<>] (?:[A-Z]+ \S+ )?HTTP/[\d.]+|[{}] \[\d+ bytes data\]"
)
_OF_CURL: Final = re.compile(rb"[*>](?:\s|$)|\s*% Total\s+% Received|\s*Dload\s+Upload")
_HEADER_OF_CURL: Final = re.compile(rb"\A<(?: |(?=\r?$))")
_NOTE: Final = re.compile(
    rb"% (?:Reached end of topic|Auto-selecting )|Processed a total of \d+ messages"
    rb"|Option --property is deprecated"
)
_COMMAND: Final = re.compile(
    rb"(?:[^{\[\t]{0,200}?[$#%>] )?(?:curl|kcat|kafkacat|rpk|kafka-console-consumer(?:\.sh)?) -*\w"
)


def without_notes(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines without what programs print for people.

    Headers that `curl -v` shows after `<` are as `curl -i` writes them. A note in mid-line, where
    standard output and standard error are one file, is cut out.
    """
    of_curl, in_command, cut = False, False, b""
    for number, whole in enumerate(lines, 1):
        line = cut + whole
        cut = b""
        if in_command or _COMMAND.match(line):
            in_command = line.rstrip().endswith(b"\\")
            continue
        if b"\r" in line:
            line = _PROGRESS.sub(b"", line)
        if line[:1] in b"*<> {}%" and not of_curl:
            of_curl = bool(_CURL.match(line)) or (number == 1 and line.startswith(b"* "))
        if b" bytes data]" in line or b"% Reached end" in line:
            note = _NOTE_AT_END.search(line)
            if note is not None:
                cut = line[: note.start()]
                continue
        if _NOTE.match(line) or (of_curl and _OF_CURL.match(line)):
            continue
        yield number, _HEADER_OF_CURL.sub(b"", line, count=1) if of_curl else line
    if cut:
        yield number, cut
