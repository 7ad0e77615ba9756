"""Fixtures that all tests share."""

from tests.kafka_server.fixture import kafka

__all__ = ["kafka"]
