package io.github.kconsume.handler;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/** Messages that were waiting together; at least one. */
public final class Batch {
  private final List<Message> messages;
  private final Call call;
  private final Map<Integer, Throwable> failed = new HashMap<>(); // guarded by this

  Batch(List<Message> messages, Call call) {
    this.messages = messages;
    this.call = call;
  }

  public List<Message> messages() {
    return messages;
  }

  public int size() {
    return messages.size();
  }

  /**
   * Says that message number i failed with e, whatever the call ends with. The last one counts. It may
   * be called from many threads, until the call returns.
   */
  public synchronized void fail(int i, Throwable e) {
    Objects.checkIndex(i, messages.size());
    failed.put(i, Objects.requireNonNull(e, "what message " + i + " failed with"));
  }

  synchronized Map<Integer, Throwable> failures() {
    return Map.copyOf(failed);
  }

  /** Whether the earliest deadline has passed or all deliveries are cancelled. The thread is interrupted, too. */
  public boolean isCancelled() {
    return call.ended();
  }

  /** How long until the earliest deadline; empty = there is none. */
  public Optional<Duration> timeLeft() {
    return call.timeLeft();
  }

  /** See {@link Message#isDraining}. */
  public boolean isDraining() {
    return call.draining();
  }
}
