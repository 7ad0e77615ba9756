// Send answers as CloudEvents with the SDK for JavaScript and kafkajs.
// Arguments: bootstrap servers, topic, and a mode of two words: content mode, and whether the
// application gives the SDK text, bytes, or an object where the answer is JSON.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.cwd() + "/");
const { CloudEvent, Kafka: binding } = require("cloudevents");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, mode] = process.argv.slice(2);
const [contentMode, kind] = mode.split("_");
const producer = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR }).producer();
await producer.connect();
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { id, content_type: type, body } = JSON.parse(line);
  const whole = type === "application/json";
  const data = { text: body, bytes: Buffer.from(body), object: whole ? JSON.parse(body) : body };
  const event = new CloudEvent({
    id,
    source: "/gateway",
    type: "org.kubeflow.serving.inference.response",
    datacontenttype: type,
    data: data[kind],
  });
  const { headers, value } = binding[contentMode](event);
  const known = Object.entries(headers).filter(([, text]) => text !== undefined);
  // kafkajs sends text and bytes only.
  const isSent = typeof value === "string" || Buffer.isBuffer(value);
  const message = { headers: Object.fromEntries(known), value: isSent ? value : JSON.stringify(value) };
  await producer.send({ topic, messages: [message] });
}
await producer.disconnect();
