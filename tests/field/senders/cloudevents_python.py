"""Send answers as CloudEvents with the SDK for Python.

Arguments: bootstrap servers, topic, and a mode of three words: which of the SDK's two interfaces,
content mode, and whether the application gives it text or bytes.
"""

import json
import sys

from cloudevents.core.bindings import kafka as v2
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as EventV2
from cloudevents.v1 import kafka as v1
from cloudevents.v1.http import CloudEvent as EventV1
from confluent_kafka import Producer

bootstrap, topic, mode = sys.argv[1:]
interface, content_mode, kind = mode.split("_")
producer = Producer({"bootstrap.servers": bootstrap})
for line in sys.stdin:
    answer = json.loads(line)
    attributes = {
        "id": answer["id"],
        "source": "/gateway",
        "type": "org.kubeflow.serving.inference.response",
        "datacontenttype": answer["content_type"],
    }
    data = answer["body"].encode() if kind == "bytes" else answer["body"]
    if interface == "v1":
        write = v1.to_binary if content_mode == "binary" else v1.to_structured
        message = write(EventV1(attributes, data))
    else:
        write = v2.to_binary if content_mode == "binary" else v2.to_structured
        message = write(EventV2(attributes, data), JSONFormat())
    producer.produce(topic, message.value, message.key, headers=message.headers)
producer.flush()
