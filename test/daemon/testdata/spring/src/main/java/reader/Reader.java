package reader;

import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.messaging.handler.annotation.Payload;

/** Reads dead letters as a Spring application does, and prints one line for each. */
@Configuration
@EnableKafka
public class Reader {
    static final CountDownLatch LEFT = new CountDownLatch(Integer.getInteger("records"));

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, System.getProperty("brokers"),
            ConsumerConfig.GROUP_ID_CONFIG, "spring-reader",
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class)));
        return factory;
    }

    @KafkaListener(topics = "${topic}")
    void dead(@Payload String value,
              @Header(KafkaHeaders.DLT_ORIGINAL_TOPIC) String topic,
              @Header(KafkaHeaders.DLT_ORIGINAL_PARTITION) int partition,
              @Header(KafkaHeaders.DLT_ORIGINAL_OFFSET) long offset,
              @Header(KafkaHeaders.DLT_ORIGINAL_TIMESTAMP) long timestamp,
              @Header(KafkaHeaders.DLT_ORIGINAL_CONSUMER_GROUP) String group,
              @Header(KafkaHeaders.DLT_EXCEPTION_FQCN) String exception,
              @Header(KafkaHeaders.DLT_EXCEPTION_MESSAGE) String message,
              @Header("__dlq.errors.topic") String shareTopic,
              @Header("__dlq.errors.offset") String shareOffset,
              @Header("__dlq.errors.delivery.count") String deliveries) {
        System.out.println(String.join("|", "dead", value, topic, "" + partition, "" + offset, "" + (timestamp > 0), group, exception, message,
            shareTopic, shareOffset, deliveries));
        LEFT.countDown();
    }

    public static void main(String[] args) throws Exception {
        try (var context = new AnnotationConfigApplicationContext(Reader.class)) {
            LEFT.await();
        }
        System.exit(0);
    }
}
