"""Everything that talks to Kafka: clients, the consume loop, delivery and commits."""
