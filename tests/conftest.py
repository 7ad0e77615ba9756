"""Fixtures that all tests share."""

from tests.kafka.server.fixture import kafka

__all__ = ["kafka"]
