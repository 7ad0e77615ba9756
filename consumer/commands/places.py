"""Places of messages: topic, partition and offset."""

from consumer.core.message import CapturedMessage

MessagePlace = tuple[str, int, int]
"""Topic, partition and offset of a message."""


def place_of(message: CapturedMessage) -> MessagePlace:
    """Return the place of a message."""
    return message.at_topic, message.at_partition, message.at_offset


def place_text(place: MessagePlace) -> str:
    """Return TOPIC:PARTITION:OFFSET."""
    return ":".join(map(str, place))
