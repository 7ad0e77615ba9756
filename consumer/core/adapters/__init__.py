"""One adapter per serving engine: the only code that knows an engine's keys."""
