"""From a serving fleet's response events to speculative-decoding acceptance records."""
