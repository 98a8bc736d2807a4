package reader;

import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.util.backoff.FixedBackOff;

/** Is a Spring application whose listener fails each record, so that Spring dead-letters it. */
public class Writer {
    public static void main(String[] args) throws Exception {
        Map<String, Object> consumer = Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, System.getProperty("brokers"),
            ConsumerConfig.GROUP_ID_CONFIG, System.getProperty("group"),
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class);
        Map<String, Object> producer = Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, System.getProperty("brokers"),
            ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
            ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        var left = new CountDownLatch(Integer.getInteger("records"));
        var recoverer = new DeadLetterPublishingRecoverer(new KafkaTemplate<>(new DefaultKafkaProducerFactory<String, String>(producer)),
            (record, e) -> new TopicPartition(record.topic() + "-dlt", record.partition()));
        var properties = new ContainerProperties(System.getProperty("topic"));
        properties.setGroupId(System.getProperty("group"));
        properties.setMessageListener((MessageListener<String, String>) record -> {
            throw new IllegalStateException("customer " + record.key() + " is not known");
        });
        var container = new ConcurrentMessageListenerContainer<>(new DefaultKafkaConsumerFactory<String, String>(consumer), properties);
        container.setCommonErrorHandler(new DefaultErrorHandler((ConsumerRecord<?, ?> record, Exception e) -> {
            recoverer.accept(record, e);
            left.countDown();
        }, new FixedBackOff(0, 0)));
        container.start();
        boolean all = left.await(2, TimeUnit.MINUTES);
        container.stop(); // it commits what was recovered
        System.exit(all ? 0 : 1);
    }
}
