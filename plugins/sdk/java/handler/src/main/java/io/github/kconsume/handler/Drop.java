package io.github.kconsume.handler;

/** Nothing is to be done for the record, on purpose: it is done, and counted under this reason. */
public final class Drop extends HandlerException {
  public Drop(String reason) {
    super(reason, null);
  }
}
