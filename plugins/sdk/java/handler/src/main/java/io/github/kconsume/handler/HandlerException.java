package io.github.kconsume.handler;

/** An exception with an explicit verdict, found however deep it is in the causes of another. */
public abstract sealed class HandlerException extends RuntimeException permits Transient, Permanent, Drop, Poison {
  private String code = "";

  HandlerException(String message, Throwable cause) {
    super(message, cause);
  }

  static String textOf(Throwable cause) {
    return cause.getMessage() == null ? cause.getClass().getName() : cause.getMessage();
  }

  /** A short machine-readable word; empty = none. */
  public final String code() {
    return code;
  }

  final void setCode(String code) {
    this.code = code == null ? "" : code;
  }
}
