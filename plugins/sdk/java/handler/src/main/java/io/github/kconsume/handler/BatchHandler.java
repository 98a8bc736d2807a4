package io.github.kconsume.handler;

/** Handles many records at once, as a bulk insert does; it is called from many threads at once. */
@FunctionalInterface
public interface BatchHandler {
  /**
   * Returning means that all records are done which were not failed singly with {@link Batch#fail};
   * an exception is for all those.
   *
   * @throws Exception whatever goes wrong
   */
  void handle(Batch batch) throws Exception;
}
