package io.github.kconsume.handler;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;

/**
 * One header of a record. Names repeat and their order counts. A name is bytes by Kafka's rules and
 * need not be UTF-8; a null value differs from an empty one. The bytes must not be changed.
 *
 * @param rawKey the name's bytes
 */
public record Header(byte[] rawKey, byte[] value) {
  public Header {
    Objects.requireNonNull(rawKey, "name of a header");
  }

  public Header(String key, byte[] value) {
    this(key.getBytes(StandardCharsets.UTF_8), value);
  }

  /** The name as text; what is not UTF-8 is replaced. */
  public String key() {
    return new String(rawKey, StandardCharsets.UTF_8);
  }

  @Override
  public boolean equals(Object o) {
    return o instanceof Header h && Arrays.equals(rawKey, h.rawKey) && Arrays.equals(value, h.value);
  }

  @Override
  public int hashCode() {
    return 31 * Arrays.hashCode(rawKey) + Arrays.hashCode(value);
  }

  @Override
  public String toString() {
    return key() + "=" + (value == null ? "null" : value.length + " bytes");
  }
}
