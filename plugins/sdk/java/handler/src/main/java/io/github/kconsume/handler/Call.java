package io.github.kconsume.handler;

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/** One call of the handler, for one record or a batch of them. */
final class Call {
  private static final long NONE = Long.MAX_VALUE;

  final List<Delivery> deliveries;
  final List<Message> messages;
  private final Pool pool;
  /** On the clock of System.nanoTime; a batch's is the earliest. */
  private final long deadline;

  private volatile boolean ended;
  private volatile Set<Long> cancelled = Set.of(); // replaced, never changed

  Call(List<Delivery> deliveries, Pool pool, long now) {
    this.deliveries = deliveries;
    this.pool = pool;
    long earliest = NONE;
    for (Delivery d : deliveries) {
      if (d.deadlineMs > 0 && d.due == 0) d.due = now + d.deadlineMs * 1_000_000 | 1; // never 0
      if (d.due != 0 && (earliest == NONE || d.due - earliest < 0)) earliest = d.due;
    }
    this.deadline = earliest;
    if (deliveries.size() == 1) this.messages = List.of(new Message(deliveries.get(0), this));
    else this.messages = deliveries.stream().map(d -> new Message(d, this)).toList();
  }

  boolean hasDeadline() {
    return deadline != NONE;
  }

  long deadline() {
    return deadline;
  }

  boolean expired(long now) {
    return hasDeadline() && now - deadline >= 0;
  }

  boolean ended() {
    return ended || hasDeadline() && expired(System.nanoTime());
  }

  void end() {
    ended = true;
  }

  /** The call of a batch goes on until all its records are cancelled; then it returns true. */
  boolean cancel(Set<Long> handles) {
    Set<Long> more = new HashSet<>(cancelled);
    for (Delivery d : deliveries) if (handles.contains(d.handle)) more.add(d.handle);
    cancelled = more;
    return more.size() == deliveries.size();
  }

  boolean cancelled(long handle) {
    return cancelled.contains(handle);
  }

  Optional<Duration> timeLeft() {
    return hasDeadline() ? Optional.of(Duration.ofNanos(Math.max(0, deadline - System.nanoTime()))) : Optional.empty();
  }

  boolean draining() {
    return pool.draining();
  }
}
