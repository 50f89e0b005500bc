package conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** The table of record shapes that every client's suite runs over, from its JSON: bytes in base 64, null where nothing is. */
final class Shapes {
    private Shapes() {}

    static List<ProducerRecord<byte[], byte[]>> ofTopic(Path table, String topic) throws IOException {
        List<ProducerRecord<byte[], byte[]>> shapes = new ArrayList<>();
        for (JsonNode shape : new ObjectMapper().readTree(table.toFile())) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : shape.get("headers")) headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            Long timestamp = shape.get("timestamp_ms").isNull() ? null : shape.get("timestamp_ms").asLong();
            shapes.add(new ProducerRecord<>(topic, 0, timestamp, bytes(shape.get("key")), bytes(shape.get("value")), headers));
        }
        return shapes;
    }

    private static byte[] bytes(JsonNode text) throws IOException {
        return text.isNull() ? null : text.binaryValue();
    }
}
