import io.cloudevents.CloudEvent;
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.core.message.Encoding;
import io.cloudevents.jackson.JsonFormat;
import io.cloudevents.kafka.CloudEventSerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends answers as CloudEvents with the SDK for Java. Arguments: bootstrap servers, topic, and a mode
 * of one or two words: content mode; "json" labels all data as JSON, as KServe's logger does.
 */
class CloudEventsJava {
    public static void main(String[] args) throws Exception {
        String[] mode = args[2].split("_");
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        config.put("key.serializer", StringSerializer.class);
        config.put("value.serializer", CloudEventSerializer.class);
        config.put(CloudEventSerializer.ENCODING_CONFIG, Encoding.valueOf(mode[0].toUpperCase()));
        if (mode[0].equals("structured")) {
            config.put(CloudEventSerializer.EVENT_FORMAT_CONFIG, JsonFormat.CONTENT_TYPE);
        }
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaProducer<String, CloudEvent> producer = new KafkaProducer<>(config)) {
            for (String line; (line = lines.readLine()) != null; ) {
                JsonNode answer = json.readTree(line);
                String type = mode.length > 1 ? "application/json" : answer.get("content_type").asText();
                CloudEvent event = CloudEventBuilder.v1()
                    .withId(answer.get("id").asText())
                    .withSource(URI.create("/gateway"))
                    .withType("org.kubeflow.serving.inference.response")
                    .withData(type, answer.get("body").asText().getBytes(StandardCharsets.UTF_8))
                    .build();
                producer.send(new ProducerRecord<>(args[1], event)).get();
            }
        }
    }
}
