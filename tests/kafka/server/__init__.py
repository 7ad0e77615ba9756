"""A real Apache Kafka for the tests."""
