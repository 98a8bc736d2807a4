package io.github.kconsume.handler;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Goes over the fields of a protobuf message in a byte array. The fields of the contract are varints
 * and bytes; others, and unknown ones, are left to the caller to pass over.
 */
final class ProtoReader {
  private final byte[] buffer;
  private final int end;
  private int at;

  private int field;
  private int kind;
  private long number; // of a varint
  private int from; // of a bytes field
  private int to;

  ProtoReader(byte[] buffer) {
    this(buffer, 0, buffer.length);
  }

  private ProtoReader(byte[] buffer, int from, int to) {
    this.buffer = buffer;
    this.at = from;
    this.end = to;
  }

  /** Moves to the next field. */
  boolean next() throws WireException {
    if (at == end) return false;
    long tag = varint();
    if (tag >>> 3 == 0 || tag >>> 3 > (1 << 29) - 1) throw new WireException("field number " + (tag >>> 3));
    field = (int) (tag >>> 3);
    kind = (int) (tag & 7);
    switch (kind) {
      case 0 -> number = varint();
      case 1 -> skip(8);
      case 2 -> {
        long n = varint();
        from = at;
        skip(n);
        to = at;
      }
      case 5 -> skip(4);
      default -> throw new WireException("type " + kind + " of field " + field);
    }
    return true;
  }

  private void skip(long n) throws WireException {
    if (n < 0 || n > end - at) throw new WireException("it ends within field " + field);
    at += (int) n;
  }

  private long varint() throws WireException {
    long n = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at == end) throw new WireException("it ends within a number");
      byte b = buffer[at++];
      n |= (long) (b & 0x7f) << shift;
      if (b >= 0) return n;
    }
    throw new WireException("number of more than 10 bytes");
  }

  /** The number of the field at hand, 0 where it is another one or of another type. */
  int field() {
    return kind == 0 || kind == 2 ? field : 0;
  }

  long number() throws WireException {
    expect(0);
    return number;
  }

  byte[] bytes() throws WireException {
    expect(2);
    return Arrays.copyOfRange(buffer, from, to);
  }

  /** Text that is not UTF-8 is replaced. */
  String text() throws WireException {
    expect(2);
    return new String(buffer, from, to - from, StandardCharsets.UTF_8);
  }

  /** The text, which is {@code last} where the bytes are the same: most records of a frame share some. */
  String text(String last) throws WireException {
    expect(2);
    int n = to - from;
    if (last.length() != n) return text();
    for (int i = 0; i < n; i++) if (last.charAt(i) != buffer[from + i]) return text();
    return last;
  }

  ProtoReader message() throws WireException {
    expect(2);
    return new ProtoReader(buffer, from, to);
  }

  /** The numbers of a repeated field, packed or not. */
  void numbers(java.util.function.LongConsumer each) throws WireException {
    if (kind == 0) {
      each.accept(number);
      return;
    }
    ProtoReader packed = message();
    while (packed.at < packed.end) each.accept(packed.varint());
  }

  private void expect(int wanted) throws WireException {
    if (kind != wanted) throw new WireException("type " + kind + " of field " + field);
  }
}
