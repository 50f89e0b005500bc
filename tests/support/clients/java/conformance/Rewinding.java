package conformance;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What a consumer does about a batch of records that it polled: commit all of it, or go back to where it is committed. */
final class Rewinding {
    private Rewinding() {}

    static <K, V> Map<TopicPartition, OffsetAndMetadata> after(ConsumerRecords<K, V> polled) {
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        for (ConsumerRecord<K, V> record : polled) {
            next.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        return next;
    }

    /** A refused commit leaves the position ahead of what is committed; partitions given away meanwhile are somebody else's. */
    static <K, V> void rewind(Consumer<K, V> consumer, ConsumerRecords<K, V> polled) {
        Set<TopicPartition> ours = new HashSet<>(polled.partitions());
        ours.retainAll(consumer.assignment());
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(ours);
        for (TopicPartition partition : ours) {
            OffsetAndMetadata known = committed.get(partition);
            consumer.seek(partition, known == null ? polled.records(partition).get(0).offset() : known.offset());
        }
    }
}
