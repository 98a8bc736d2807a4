package io.github.kconsume.handler;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Calls a handler: at most so many calls at once, each under its deadline. A call is for one record, or
 * for a batch of them: what waits when there is room for a call.
 *
 * <p>A call whose time is over is interrupted. One that is not back shortly after is answered at once,
 * as a transient timeout and late; its handle comes once more in ended when it is. Late calls do not
 * count in the concurrency as long as there are no more of them than that, so that they starve nobody.
 *
 * <p>All state is guarded by one lock. For a record it is taken once, to settle one call and take the
 * next.
 */
final class Pool {
  /** How long after its deadline a call counts as late. A handler that heeds it has its own say within that. */
  private static final long LATE_AFTER = TimeUnit.MILLISECONDS.toNanos(10);

  /** What runs the handler on a call and tells what became of it. It throws nothing. */
  interface Body {
    /** For each message of the call its outcome, in their order. */
    List<Outcome> run(Call call);
  }

  /**
   * @param verdict null = acknowledged, and nothing to say
   * @param again no verdict yet: the handler is to be called for the record alone
   */
  record Outcome(Verdict verdict, boolean again) {
    static final Outcome ACKNOWLEDGED = new Outcome(null, false);
  }

  private final Body body;
  private final int concurrency;
  private final int batch; // the most records of a call

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition idlers = lock.newCondition(); // workers without a call
  private final Condition answered = lock.newCondition(); // there is something to send, or no more
  private final Condition alarm = lock.newCondition(); // a deadline is earlier than the next look
  private final ArrayDeque<Delivery> queue = new ArrayDeque<>();
  private final ArrayDeque<Delivery> again = new ArrayDeque<>(); // each to be handled alone
  private final Set<Worker> workers = new HashSet<>();
  private Answers pending = new Answers();
  private int open; // deliveries not answered yet
  private int idle;
  private int late;
  private boolean waking; // a worker has been woken or started and not come yet
  private boolean watching; // the thread that looks at deadlines runs
  private long alarmAt; // when it looks next, where alarmSet
  private boolean alarmSet;
  private boolean closed;
  private volatile boolean draining;

  Pool(Body body, int concurrency, int batch) {
    this.body = body;
    this.concurrency = concurrency;
    this.batch = batch;
  }

  /** Never blocks; how much waits here is bounded by who delivers. */
  void deliver(List<Delivery> deliveries) {
    lock.lock();
    try {
      if (closed) return;
      queue.addAll(deliveries);
      open += deliveries.size();
      wake();
    } finally {
      lock.unlock();
    }
  }

  /** Those that have not begun are answered now, the others when they end. */
  void cancel(Set<Long> handles) {
    lock.lock();
    try {
      for (ArrayDeque<Delivery> waiting : List.of(again, queue)) {
        waiting.removeIf(d -> {
          boolean cancelled = handles.contains(d.handle);
          if (cancelled) answer(d.handle, Verdict.CANCELLED, false);
          return cancelled;
        });
      }
      for (Worker w : workers) if (w.call != null && w.call.cancel(handles)) w.end();
    } finally {
      lock.unlock();
    }
  }

  /** Ends the answers when everything delivered is answered. Late calls are not waited for. */
  void drain() {
    lock.lock();
    try {
      draining = true;
      answered.signal();
    } finally {
      lock.unlock();
    }
  }

  boolean draining() {
    return draining;
  }

  /** Nobody wants answers any more. A call that does not end keeps its thread. */
  void close() {
    lock.lock();
    try {
      closed = true;
      queue.clear();
      again.clear();
      for (Worker w : workers) if (w.call != null) w.end();
      idlers.signalAll();
      answered.signal();
      alarm.signal();
    } finally {
      lock.unlock();
    }
  }

  /** Waits for answers, which grow while nobody asks; null = there are no more. For one thread. */
  Answers next() {
    lock.lock();
    try {
      while (pending.isEmpty() && !over()) answered.awaitUninterruptibly();
      if (closed || pending.isEmpty()) return null;
      Answers a = pending;
      pending = new Answers();
      return a;
    } finally {
      lock.unlock();
    }
  }

  // What follows is for whoever holds the lock.

  private boolean over() {
    return closed || draining && open == 0;
  }

  private void answer(long handle, Verdict verdict, boolean late) {
    open--;
    if (verdict == null) pending.acked.add(handle);
    else pending.verdicts.add(new Answers.Answer(handle, verdict, late));
    answered.signal();
  }

  /**
   * Sees to it that a worker comes for what waits, if there is room for one more call. One at a time:
   * who comes wakes the next, so that a handler that returns at once keeps few threads busy and one
   * that waits gets all of them.
   */
  private void wake() {
    if (waking || closed || queue.isEmpty() && again.isEmpty()) return;
    if (idle > 0) {
      waking = true;
      idlers.signal();
    } else if (surplus() < 0) {
      waking = true;
      Worker w = new Worker();
      workers.add(w);
      w.start();
    }
  }

  /** By how many the workers exceed the calls that may run. */
  private int surplus() {
    return workers.size() - concurrency - Math.min(late, concurrency);
  }

  /** The records of the next call. */
  private List<Delivery> claim() {
    Delivery first = again.isEmpty() ? queue.poll() : again.poll();
    if (first == null) return List.of();
    if (batch == 1 || first.lonely() || first.due != 0) return List.of(first);
    List<Delivery> list = new ArrayList<>();
    list.add(first);
    while (list.size() < batch && !queue.isEmpty() && !queue.peek().lonely()) list.add(queue.poll());
    return list;
  }

  private void watch(long at) {
    if (alarmSet && at - alarmAt >= 0) return;
    alarmSet = true;
    alarmAt = at;
    alarm.signal();
    if (watching) return;
    watching = true;
    Thread t = new Thread(this::watchDeadlines, "kconsume-deadlines");
    t.setDaemon(true);
    t.start();
  }

  private void watchDeadlines() {
    lock.lock();
    try {
      while (!closed) {
        long wait = alarmAt - System.nanoTime();
        if (!alarmSet) alarm.awaitUninterruptibly();
        else if (wait > 0) alarm.awaitNanos(wait);
        else expire();
      }
    } catch (InterruptedException e) {
      throw new IllegalStateException("nobody interrupts this thread", e);
    } finally {
      lock.unlock();
    }
  }

  /** It is right whenever it runs. A call whose time is over gets a while to heed that, however late we are. */
  private void expire() {
    alarmSet = false;
    long now = System.nanoTime();
    for (Worker w : workers) {
      if (w.call == null || w.late || !w.call.hasDeadline()) continue;
      if (!w.call.expired(now)) {
        watch(w.call.deadline());
      } else if (!w.expired) {
        w.expired = true;
        w.lateAt = now + LATE_AFTER;
        w.end();
        watch(w.lateAt);
      } else if (now - w.lateAt < 0) {
        watch(w.lateAt);
      } else {
        belate(w);
      }
    }
    wake();
  }

  /** Answers for a call that runs on. A batch keeps all its keys until it has ended. */
  private void belate(Worker w) {
    w.late = true;
    late++;
    for (Delivery d : w.call.deliveries) {
      answer(d.handle, w.call.cancelled(d.handle) ? Verdict.CANCELLED : Verdict.timeout(d.deadlineMs), true);
    }
  }

  /** One thread; all its state is guarded by the lock. */
  private final class Worker extends Thread {
    private Call call; // null while it waits for one
    private boolean expired;
    private boolean late;
    private long lateAt;
    private boolean woken = true;

    Worker() {
      super("kconsume-handler");
      setDaemon(true);
    }

    @Override
    public void run() {
      List<Outcome> outcomes = List.of();
      while (next(outcomes)) outcomes = body.run(call);
    }

    /** Settles the call that has ended and takes the next one; false means that the worker is to end. */
    private boolean next(List<Outcome> outcomes) {
      lock.lock();
      try {
        settle(outcomes);
        while (true) {
          if (woken) waking = woken = false;
          List<Delivery> deliveries = closed || surplus() > 0 ? null : claim();
          if (deliveries == null) {
            workers.remove(this);
            wake();
            return false;
          }
          if (!deliveries.isEmpty()) {
            call = new Call(deliveries, Pool.this, System.nanoTime());
            if (call.hasDeadline()) watch(call.deadline());
            wake();
            return true;
          }
          idle++;
          idlers.awaitUninterruptibly();
          idle--;
          woken = true;
        }
      } finally {
        lock.unlock();
      }
    }

    private void settle(List<Outcome> outcomes) {
      if (call == null) return;
      Thread.interrupted(); // what was meant for the call
      for (int i = 0; i < call.deliveries.size(); i++) settle(call.deliveries.get(i), outcomes.get(i));
      if (late) Pool.this.late--;
      call.end();
      call = null;
      late = expired = false;
    }

    private void settle(Delivery d, Outcome o) {
      if (late) {
        pending.ended.add(d.handle);
        answered.signal();
      } else if (o.again() && (closed || call.cancelled(d.handle))) {
        answer(d.handle, Verdict.CANCELLED, false);
      } else if (o.again()) {
        again.add(d);
      } else {
        answer(d.handle, o.verdict(), false);
      }
    }

    /** Tells the call, which runs, that it is to end. */
    private void end() {
      call.end();
      interrupt();
    }
  }
}
