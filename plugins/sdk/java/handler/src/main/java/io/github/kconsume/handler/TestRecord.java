package io.github.kconsume.handler;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;

/** A record to try a handler on. Each method returns this record with one thing set; what is not set has an ordinary value. */
public final class TestRecord {
  String id;
  String topic = "test";
  int partition;
  Long offset; // null = its place among the records
  Instant time = Instant.now();
  byte[] key;
  byte[] value;
  final ProtoWriter headers = new ProtoWriter();
  int attempt = 1;
  int maxAttempts = 3;
  String stage = "main";
  String trace = "";
  String traceState = "";
  Duration timeout = Duration.ZERO;

  private TestRecord() {}

  /** A record with a null value. */
  public static TestRecord empty() {
    return new TestRecord();
  }

  public static TestRecord of(String value) {
    return of(value.getBytes(StandardCharsets.UTF_8));
  }

  public static TestRecord of(byte[] value) {
    TestRecord r = new TestRecord();
    r.value = value;
    return r;
  }

  public TestRecord id(String id) {
    this.id = id;
    return this;
  }

  public TestRecord topic(String topic) {
    this.topic = topic;
    return this;
  }

  public TestRecord partition(int partition) {
    this.partition = partition;
    return this;
  }

  public TestRecord offset(long offset) {
    this.offset = offset;
    return this;
  }

  public TestRecord key(String key) {
    return key(key.getBytes(StandardCharsets.UTF_8));
  }

  public TestRecord key(byte[] key) {
    this.key = key;
    return this;
  }

  public TestRecord header(Header h) {
    headers.message(9, new ProtoWriter().bytes(1, h.rawKey()).bytes(2, h.value()));
    return this;
  }

  /** null = none. */
  public TestRecord time(Instant time) {
    this.time = time;
    return this;
  }

  public TestRecord attempt(int attempt, int maxAttempts) {
    this.attempt = attempt;
    this.maxAttempts = maxAttempts;
    return this;
  }

  public TestRecord stage(String stage) {
    this.stage = stage;
    return this;
  }

  /** What kconsume gives where it traces; see {@link Message#trace}. */
  public TestRecord trace(String traceparent, String tracestate) {
    trace = traceparent;
    traceState = tracestate;
    return this;
  }

  /** The deadline of its call. */
  public TestRecord timeout(Duration timeout) {
    this.timeout = timeout;
    return this;
  }

  ProtoWriter write(long handle) {
    long at = offset == null ? handle : offset;
    long ms = time == null ? -1 : time.toEpochMilli();
    ProtoWriter w = new ProtoWriter()
        .number(1, handle).text(2, id == null ? topic + "/" + partition + "/" + at + "@" + ms : id).text(3, topic)
        .number(4, partition).number(5, at).number(6, ms).bytes(7, key).bytes(8, value);
    return w.append(headers).number(10, attempt).number(11, maxAttempts).text(12, stage).number(13, timeout.toMillis())
        .text(14, trace).text(15, traceState);
  }
}
