package io.github.kconsume.handler;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;

/**
 * Says what a handler is. Each method returns a copy with one thing more.
 *
 * <pre>{@code Config.of("orders").version("1.0.0").topics("orders.confirmed")}</pre>
 */
public final class Config {
  /** What --handler calls it. */
  final String name;
  final String version;
  final List<String> topics;
  final List<Function<Throwable, HandlerException>> classifiers;
  final Runnable close;
  /** The most messages of a batch. */
  final int max;
  /** Bounds the calls at once; 0 = only --concurrency does. */
  final int concurrency;
  /** Hold no record to its deadline. */
  final boolean debug;

  private Config(
      String name, String version, List<String> topics, List<Function<Throwable, HandlerException>> classifiers,
      Runnable close, int max, int concurrency, boolean debug) {
    if (name == null || name.isEmpty()) throw new IllegalArgumentException("a handler needs a name");
    if (max < 1 || concurrency < 0) throw new IllegalArgumentException("a batch takes at least one message, and at least one call runs");
    this.name = name;
    this.version = Objects.requireNonNull(version, "version");
    this.topics = List.copyOf(topics);
    this.classifiers = List.copyOf(classifiers);
    this.close = close;
    this.max = max;
    this.concurrency = concurrency;
    this.debug = debug;
  }

  /** A handler that --handler calls by this name. */
  public static Config of(String name) {
    return new Config(name, "", List.of(), List.of(), null, 100, 0, false);
  }

  public Config version(String version) {
    return new Config(name, version, topics, classifiers, close, max, concurrency, debug);
  }

  /** Topics that it is made for; for people to read. */
  public Config topics(String... topics) {
    return new Config(name, version, List.of(topics), classifiers, close, max, concurrency, debug);
  }

  /**
   * A rule that is asked before the built-in ones, after those given before it. It returns what the
   * exception means, such as {@code new Permanent(e)}, or null where it has no opinion.
   */
  public Config classifier(Function<Throwable, HandlerException> ask) {
    List<Function<Throwable, HandlerException>> more = new ArrayList<>(classifiers);
    more.add(Objects.requireNonNull(ask, "classifier"));
    return new Config(name, version, topics, more, close, max, concurrency, debug);
  }

  /** Is called once, when kconsume has asked for the end and the last record is answered. It has 3 s. */
  public Config onClose(Runnable close) {
    return new Config(name, version, topics, classifiers, close, max, concurrency, debug);
  }

  /** The most messages of a batch; 100 where nothing is said. */
  public Config maxBatch(int max) {
    return new Config(name, version, topics, classifiers, close, max, concurrency, debug);
  }

  /** Bounds the calls at once where that is to be less than --concurrency: fewer batches at once are larger ones. */
  public Config concurrency(int calls) {
    return new Config(name, version, topics, classifiers, close, max, calls, debug);
  }

  Config debug(boolean debug) {
    return new Config(name, version, topics, classifiers, close, max, concurrency, debug);
  }
}
