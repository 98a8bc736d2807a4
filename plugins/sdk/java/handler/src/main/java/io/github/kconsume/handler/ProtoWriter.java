package io.github.kconsume.handler;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/** Writes a protobuf message. What is zero, empty or null is left out, but for {@link #bytes}. */
final class ProtoWriter {
  private final ByteArrayOutputStream out = new ByteArrayOutputStream();

  ProtoWriter number(int field, long n) {
    if (n != 0) {
      varint((long) field << 3);
      varint(n);
    }
    return this;
  }

  ProtoWriter flag(int field, boolean set) {
    return number(field, set ? 1 : 0);
  }

  /** Empty bytes are written: fields that tell null from empty need it. */
  ProtoWriter bytes(int field, byte[] b) {
    if (b != null) {
      varint((long) field << 3 | 2);
      varint(b.length);
      out.writeBytes(b);
    }
    return this;
  }

  ProtoWriter text(int field, String s) {
    return s == null || s.isEmpty() ? this : bytes(field, s.getBytes(StandardCharsets.UTF_8));
  }

  /** Text cut to so many bytes, at the end of a character. */
  ProtoWriter text(int field, String s, int max) {
    if (s == null || s.isEmpty()) return this;
    byte[] b = s.substring(0, Math.min(s.length(), max)).getBytes(StandardCharsets.UTF_8);
    int n = Math.min(b.length, max);
    while (n < b.length && (b[n] & 0xc0) == 0x80) n--;
    return bytes(field, n == b.length ? b : java.util.Arrays.copyOf(b, n));
  }

  ProtoWriter message(int field, ProtoWriter m) {
    return bytes(field, m.toByteArray());
  }

  /** The fields of another message, as if they were written here. */
  ProtoWriter append(ProtoWriter fields) {
    out.writeBytes(fields.toByteArray());
    return this;
  }

  ProtoWriter packed(int field, Iterable<Long> numbers) {
    ProtoWriter list = new ProtoWriter();
    for (long n : numbers) list.varint(n);
    return list.size() == 0 ? this : message(field, list);
  }

  private void varint(long n) {
    while ((n & ~0x7fL) != 0) {
      out.write((int) n & 0x7f | 0x80);
      n >>>= 7;
    }
    out.write((int) n);
  }

  int size() {
    return out.size();
  }

  byte[] toByteArray() {
    return out.toByteArray();
  }
}
