package io.github.kconsume.handler;

/** Will not pass: the record goes to the dead letters. */
public final class Permanent extends HandlerException {
  public Permanent(String message) {
    super(message, null);
  }

  public Permanent(String message, Throwable cause) {
    super(message, cause);
  }

  public Permanent(Throwable cause) {
    super(textOf(cause), cause);
  }

  /** A short machine-readable word. */
  public Permanent code(String code) {
    setCode(code);
    return this;
  }
}
