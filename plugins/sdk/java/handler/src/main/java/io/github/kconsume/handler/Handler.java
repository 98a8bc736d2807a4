package io.github.kconsume.handler;

/** Handles one record at a time; it is called from many threads at once. */
@FunctionalInterface
public interface Handler {
  /**
   * Returning means that the record is done. What an exception means is told by its type.
   *
   * @throws Exception whatever goes wrong
   */
  void handle(Message m) throws Exception;
}
