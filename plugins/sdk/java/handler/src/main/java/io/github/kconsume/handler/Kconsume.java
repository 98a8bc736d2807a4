package io.github.kconsume.handler;

/** Where a handler's program begins: a call to serve is the last line of its main method. */
public final class Kconsume {
  private Kconsume() {}

  /**
   * Runs the handler for the kconsume that started this process, which ends when kconsume ends it. What
   * it prints goes to kconsume's log; interrupts and SIGTERM are left to kconsume.
   */
  public static void serve(Config config, Handler handler) {
    Main.serve(config, Runner.of(java.util.Objects.requireNonNull(handler, "handler"), config));
  }

  /**
   * The same for batches: what waits when a call is free, up to {@link Config#maxBatch}. Nothing lingers
   * for a batch to fill. A batch that fails with what no retry mends is handled once more, each record
   * alone, so that only the guilty one is a dead letter; the last of several attempts is made alone.
   */
  public static void serveBatches(Config config, BatchHandler handler) {
    Main.serve(config, Runner.of(java.util.Objects.requireNonNull(handler, "handler"), config));
  }
}
