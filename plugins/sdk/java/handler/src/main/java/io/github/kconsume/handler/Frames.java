package io.github.kconsume.handler;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * The frames of handler.proto, read and written without a generator and without the protobuf runtime:
 * the contract is small, and an author's own version of protobuf stays the author's.
 */
final class Frames {
  // Bounds of what one verdict holds, in bytes.
  private static final int MAX_TEXT = 8 << 10;
  private static final int MAX_CODE = 256;
  static final int MAX_STACK = 16 << 10;
  /** The most that one verdict may take, its emitted records included. */
  static final int MAX_VERDICT = 128 << 20;

  private Frames() {}

  static final class HostFrame {
    final List<Delivery> records = new ArrayList<>();
    final Set<Long> cancel = new HashSet<>();
    boolean drain;
    int concurrency; // 0 = not said
  }

  static HostFrame readHostFrame(byte[] bytes) throws WireException {
    HostFrame f = new HostFrame();
    Delivery last = new Delivery();
    for (ProtoReader r = new ProtoReader(bytes); r.next(); ) {
      switch (r.field()) {
        case 1 -> f.records.add(last = readRecord(r.message(), last));
        case 2 -> f.drain = r.number() != 0;
        case 3 -> {
          for (ProtoReader start = r.message(); start.next(); ) {
            if (start.field() == 1) f.concurrency = (int) Math.min(start.number() & 0xffffffffL, Integer.MAX_VALUE);
          }
        }
        case 4 -> r.numbers(f.cancel::add);
        default -> { }
      }
    }
    return f;
  }

  private static Delivery readRecord(ProtoReader r, Delivery last) throws WireException {
    Delivery d = new Delivery();
    while (r.next()) {
      switch (r.field()) {
        case 1 -> d.handle = r.number();
        case 2 -> d.id = r.text();
        case 3 -> d.topic = r.text(last.topic);
        case 4 -> d.partition = (int) r.number();
        case 5 -> d.offset = r.number();
        case 6 -> d.timeMs = r.number();
        case 7 -> d.key = r.bytes();
        case 8 -> d.value = r.bytes();
        case 9 -> d.addHeader(readHeader(r.message()));
        case 10 -> d.attempt = (int) Math.min(r.number(), Integer.MAX_VALUE);
        case 11 -> d.maxAttempts = (int) Math.min(r.number(), Integer.MAX_VALUE);
        case 12 -> d.stage = r.text(last.stage);
        case 13 -> d.deadlineMs = r.number() & 0xffffffffL;
        case 14 -> d.trace = r.text();
        case 15 -> d.traceState = r.text();
        default -> { }
      }
    }
    return d;
  }

  static Header readHeader(ProtoReader r) throws WireException {
    byte[] key = {};
    byte[] value = null;
    while (r.next()) {
      if (r.field() == 1) key = r.bytes();
      if (r.field() == 2) value = r.bytes();
    }
    return new Header(key, value);
  }

  static byte[] hello(Config c, String sdk, List<String> capabilities) {
    ProtoWriter hello = new ProtoWriter().text(1, sdk).text(2, c.name).text(3, c.version);
    for (String topic : c.topics) hello.text(4, topic);
    hello.flag(7, c.debug);
    for (String capability : capabilities) hello.text(8, capability);
    return new ProtoWriter().message(1, hello).toByteArray();
  }

  /** A frame of answers. Verdicts are written already, see {@link #verdict}. */
  static byte[] answers(List<Long> acked, List<byte[]> verdicts, List<Long> ended) {
    ProtoWriter w = new ProtoWriter().packed(2, acked);
    for (byte[] v : verdicts) w.bytes(3, v);
    return w.packed(4, ended).toByteArray();
  }

  /** A verdict as it is written. One too large for any frame becomes a verdict about that. */
  static byte[] verdict(Answers.Answer a) {
    Verdict v = a.verdict();
    long size = v.emitted().stream().mapToLong(Frames::sizeOf).sum();
    if (size > MAX_VERDICT) {
      String message = "emitted records take " + size + " bytes, at most " + MAX_VERDICT + " fit; emit less for one record";
      v = Verdict.plain(Verdict.Kind.PERMANENT, "permanent", message, "emitted-size");
    }
    ProtoWriter w = new ProtoWriter()
        .number(1, a.handle()).number(2, v.kind().ordinal()).text(3, v.reason(), MAX_CODE).text(4, v.code(), MAX_CODE)
        .text(5, v.message(), MAX_TEXT).number(6, Math.max(0, toMillis(v.retryAfter())));
    for (String cause : v.causes()) w.text(7, cause, MAX_TEXT);
    w.text(8, v.stack(), MAX_STACK).text(9, v.rule(), MAX_CODE);
    for (OutputRecord r : v.emitted()) w.message(10, emitted(r));
    return w.flag(11, a.late()).toByteArray();
  }

  private static long toMillis(java.time.Duration d) {
    return d.getSeconds() > Long.MAX_VALUE / 1000 - 1 ? Long.MAX_VALUE : d.toMillis();
  }

  private static ProtoWriter emitted(OutputRecord r) {
    ProtoWriter w = new ProtoWriter().text(1, r.topic()).bytes(2, r.key()).bytes(3, r.value());
    for (Header h : r.headers()) w.message(4, new ProtoWriter().bytes(1, h.rawKey()).bytes(2, h.value()));
    return w;
  }

  private static long sizeOf(OutputRecord r) {
    long n = 32L + r.topic().length() + length(r.key()) + length(r.value());
    for (Header h : r.headers()) n += 16L + h.rawKey().length + length(h.value());
    return n;
  }

  private static long length(byte[] b) {
    return b == null ? 0 : b.length;
  }
}
