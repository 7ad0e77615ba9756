"""From one Kafka message to response events: one module per envelope."""
