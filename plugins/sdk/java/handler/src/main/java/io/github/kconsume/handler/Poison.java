package io.github.kconsume.handler;

/** Bytes that cannot be decoded, whatever is done to them. */
final class Poison extends HandlerException {
  final String rule;

  Poison(String message, String rule, Throwable cause) {
    super(message, cause);
    this.rule = rule;
  }
}
