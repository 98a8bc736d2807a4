package io.github.kconsume.handler;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** One delivery of one record. Its bytes must not be changed. */
public final class Message {
  private final Delivery record;
  private final Call call;
  private final List<OutputRecord> emitted = new ArrayList<>(0);

  Message(Delivery record, Call call) {
    this.record = record;
    this.call = call;
  }

  /** The same on every delivery and replay: topic/partition/offset@timestamp-ms of the origin. */
  public String id() {
    return record.id;
  }

  /** Topic, partition and offset are the record's origin, also when it comes from a retry topic. */
  public String topic() {
    return record.topic;
  }

  public int partition() {
    return record.partition;
  }

  public long offset() {
    return record.offset;
  }

  /** null and empty are different things. */
  public byte[] key() {
    return record.key;
  }

  /** null and empty are different things. */
  public byte[] value() {
    return record.value;
  }

  /** The record's own, in order; kconsume's are removed. */
  public List<Header> headers() {
    return record.headers;
  }

  /** The last header of this name. */
  public Optional<Header> header(String name) {
    return record.headers.stream().filter(h -> h.key().equals(name)).reduce((earlier, later) -> later);
  }

  /** The origin record's timestamp; null where it has none. */
  public Instant time() {
    return record.timeMs == -1 ? null : Instant.ofEpochMilli(record.timeMs);
  }

  /** 1 on the first delivery, at most {@link #maxAttempts}. */
  public int attempt() {
    return record.attempt;
  }

  public int maxAttempts() {
    return record.maxAttempts;
  }

  /** "main", or the retry tier it came from, such as "retry.5s". */
  public String stage() {
    return record.stage;
  }

  /**
   * The W3C traceparent that spans of the handler's own continue: that of this delivery's span where
   * kconsume traces, else what the record's header says, unchecked. Empty where there is none.
   */
  public String trace() {
    return record.trace.isEmpty() ? headerText("traceparent") : record.trace;
  }

  /** The W3C tracestate that goes with {@link #trace}, mostly empty. */
  public String traceState() {
    return record.trace.isEmpty() ? headerText("tracestate") : record.traceState;
  }

  private String headerText(String name) {
    return header(name).map(Header::value).map(v -> new String(v, StandardCharsets.UTF_8)).orElse("");
  }

  /**
   * The value decoded by a parser, of JSON for example. One that cannot be decoded, null included, is
   * a poison pill: the record goes to the dead letters, whatever the parser throws.
   */
  public <T> T valueAs(Parser<T> parser) {
    if (value() == null) throw new Poison("value is null", "decode", null);
    try {
      return parser.parse(value());
    } catch (Exception e) {
      throw new Poison("value of " + value().length + " bytes: " + HandlerException.textOf(e), Rules.decoder(e), e);
    }
  }

  /** Turns bytes into a value. */
  @FunctionalInterface
  public interface Parser<T> {
    /**
     * Parses all the bytes.
     *
     * @throws Exception where they cannot be parsed
     */
    T parse(byte[] value) throws Exception;
  }

  /**
   * Queues a record that is sent once this delivery is acknowledged, and only then, to one of the
   * topics that --emit allows.
   */
  public void emit(OutputRecord r) {
    emitted.add(r);
  }

  List<OutputRecord> emitted() {
    return emitted;
  }

  /** Whether the deadline has passed or kconsume has cancelled the delivery. The thread is interrupted, too. */
  public boolean isCancelled() {
    return call.ended();
  }

  /** How long until the deadline; empty = there is none. */
  public Optional<Duration> timeLeft() {
    return call.timeLeft();
  }

  /**
   * Whether kconsume has asked this process to finish what it has. A call need not heed it; one that
   * takes long may stop early by throwing an InterruptedException or CancellationException, which
   * hands the record back: it is delivered again as the same attempt.
   */
  public boolean isDraining() {
    return call.draining();
  }

  @Override
  public String toString() {
    return "Message[" + id() + ", attempt " + attempt() + " of " + maxAttempts() + "]";
  }
}
