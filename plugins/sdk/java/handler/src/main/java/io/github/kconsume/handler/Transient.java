package io.github.kconsume.handler;

import java.time.Duration;

/** May pass: the record is delivered again, after the retry topics' delays. */
public final class Transient extends HandlerException {
  private Duration retryAfter;

  public Transient(String message) {
    super(message, null);
  }

  public Transient(String message, Throwable cause) {
    super(message, cause);
  }

  public Transient(Throwable cause) {
    super(textOf(cause), cause);
  }

  /** How long to wait; zero or less is no wish, but said on purpose. */
  public Transient retryAfter(Duration d) {
    retryAfter = d;
    return this;
  }

  /** null = not said. */
  public Duration retryAfter() {
    return retryAfter;
  }

  /** A short machine-readable word. */
  public Transient code(String code) {
    setCode(code);
    return this;
  }
}
