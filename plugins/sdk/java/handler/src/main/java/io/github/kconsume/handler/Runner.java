package io.github.kconsume.handler;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Runs a handler's code, and judges what became of it. */
final class Runner implements Pool.Body {
  private final Handler handler; // or
  private final BatchHandler batchHandler;
  private final Classify classify;

  private Runner(Handler handler, BatchHandler batchHandler, Config config) {
    this.handler = handler;
    this.batchHandler = batchHandler;
    this.classify = new Classify(config.classifiers);
  }

  static Runner of(Handler handler, Config config) {
    return new Runner(handler, null, config);
  }

  static Runner of(BatchHandler handler, Config config) {
    return new Runner(null, handler, config);
  }

  boolean batches() {
    return batchHandler != null;
  }

  @Override
  public List<Pool.Outcome> run(Call call) {
    if (!batches()) {
      Message m = call.messages.get(0);
      return List.of(outcome(judge(call, 0, caught(() -> handler.handle(m)))));
    }
    Batch batch = new Batch(call.messages, call);
    Throwable rest = caught(() -> batchHandler.handle(batch));
    Map<Integer, Throwable> failures = batch.failures();
    List<Pool.Outcome> outcomes = new ArrayList<>(call.messages.size());
    for (int i = 0; i < call.messages.size(); i++) {
      Throwable alone = failures.get(i);
      Verdict v = judge(call, i, alone == null ? rest : alone);
      if (alone == null && call.messages.size() > 1 && doubtful(v)) outcomes.add(new Pool.Outcome(null, true));
      else outcomes.add(outcome(v));
    }
    return outcomes;
  }

  private interface Code {
    void run() throws Exception;
  }

  private static Throwable caught(Code code) {
    try {
      code.run();
      return null;
    } catch (VirtualMachineError e) {
      if (!(e instanceof StackOverflowError)) Main.crash(e); // nothing works any more
      return e;
    } catch (Throwable e) {
      return e;
    }
  }

  private Verdict judge(Call call, int i, Throwable failure) {
    if (failure == null) {
      List<OutputRecord> emitted = call.messages.get(i).emitted();
      return emitted.isEmpty() ? null : Verdict.acknowledged(List.copyOf(emitted));
    }
    boolean late = call.expired(System.nanoTime());
    return classify.verdict(failure, call.cancelled(call.deliveries.get(i).handle), call.draining(), late);
  }

  /** All of a batch would be dead letters by what one of them may have caused. */
  private static boolean doubtful(Verdict v) {
    return v != null && v.kind() == Verdict.Kind.PERMANENT && !v.rule().equals(Classify.EXPLICIT);
  }

  private static Pool.Outcome outcome(Verdict v) {
    return v == null ? Pool.Outcome.ACKNOWLEDGED : new Pool.Outcome(v, false);
  }
}
