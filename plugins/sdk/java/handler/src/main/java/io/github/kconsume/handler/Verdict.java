package io.github.kconsume.handler;

import java.time.Duration;
import java.util.List;

/**
 * The typed answer to one delivery.
 *
 * @param reason the word of a failure: transient, timeout, permanent, poison, panic; else empty
 * @param code a short machine-readable word; empty = none
 * @param retryAfter the handler's wish; zero = none
 * @param causes the texts of what the exception was caused by, outermost first
 * @param stack where it was thrown, for what no rule knows
 * @param rule the rule that fired
 * @param emitted the records to send, of an acknowledgement
 */
public record Verdict(
    Kind kind, String reason, String code, String message, Duration retryAfter, List<String> causes, String stack, String rule,
    List<OutputRecord> emitted) {

  /** What becomes of the delivery. */
  public enum Kind {
    /** No verdict: it was cancelled or handed back. */
    NONE,
    ACK,
    TRANSIENT,
    PERMANENT,
    DROP
  }

  static final Verdict CANCELLED = plain(Kind.NONE, "", "", "cancelled");

  static Verdict acknowledged(List<OutputRecord> emitted) {
    return new Verdict(Kind.ACK, "", "", "", Duration.ZERO, List.of(), "", "", emitted);
  }

  static Verdict timeout(long ms) {
    return plain(Kind.TRANSIENT, "timeout", "no answer within " + ms + " ms", "timeout");
  }

  static Verdict plain(Kind kind, String reason, String message, String rule) {
    return new Verdict(kind, reason, "", message, Duration.ZERO, List.of(), "", rule, List.of());
  }
}
