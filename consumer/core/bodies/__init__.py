"""From the bytes of a response to what they say: encodings, server-sent events, JSON documents."""
