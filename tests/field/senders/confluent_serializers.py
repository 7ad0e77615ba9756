"""Send lines of a log with the Schema Registry serializers of Confluent's client.

Arguments: bootstrap servers, topic, and a mode: `json` with the schema's id before the value,
`json_header` with its id in a header, or `avro`. The registry is the client's own, in memory.
"""

import json
import sys

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

AVRO = {"type": "record", "name": "Log", "fields": [{"name": "line", "type": "string"}]}
JSON_SCHEMA = json.dumps({"title": "Log", "type": "object"})

bootstrap, topic, mode = sys.argv[1:]
registry = SchemaRegistryClient.new_client({"url": "mock://"})
if mode == "avro":
    write = AvroSerializer(registry, json.dumps(AVRO), lambda line, _: {"line": line})
elif mode == "json_header":
    by_header = {"schema.id.serializer": header_schema_id_serializer}
    write = JSONSerializer(JSON_SCHEMA, registry, lambda line, _: json.loads(line), by_header)
else:
    write = JSONSerializer(JSON_SCHEMA, registry, lambda line, _: json.loads(line))
producer = Producer({"bootstrap.servers": bootstrap})
for line in sys.stdin:
    headers: list[tuple[str, bytes]] = []
    value = write(line, SerializationContext(topic, MessageField.VALUE, headers))
    producer.produce(topic, value, headers=headers)
producer.flush()
