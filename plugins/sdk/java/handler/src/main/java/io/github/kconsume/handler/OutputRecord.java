package io.github.kconsume.handler;

import java.util.List;
import java.util.Objects;

/** A record that a handler emits. Key and value keep null and empty apart. */
public record OutputRecord(String topic, byte[] key, byte[] value, List<Header> headers) {
  public OutputRecord {
    Objects.requireNonNull(topic, "topic of an emitted record");
    headers = List.copyOf(headers);
  }

  public OutputRecord(String topic, byte[] key, byte[] value) {
    this(topic, key, value, List.of());
  }
}
