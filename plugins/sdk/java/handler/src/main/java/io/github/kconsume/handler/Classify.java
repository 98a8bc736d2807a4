package io.github.kconsume.handler;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/**
 * Turns what a handler threw into a verdict. It looks at types, codes and statuses, never at texts; the
 * first rule that matches counts and is recorded in the verdict's rule. The order is that of kconsume's
 * Go package plugin.
 */
final class Classify {
  static final String EXPLICIT = "explicit";
  private static final int MAX_CAUSES = 16;

  private final List<Function<Throwable, HandlerException>> classifiers;

  Classify(List<Function<Throwable, HandlerException>> classifiers) {
    this.classifiers = classifiers;
  }

  Verdict verdict(Throwable e, boolean cancelled, boolean draining, boolean late) {
    if (cancelled) return Verdict.CANCELLED;
    try {
      if (draining && !late && Rules.find(e, Rules::isCancellation) != null) return Verdict.CANCELLED; // handed back
      return judge(e, late);
    } catch (RuntimeException | StackOverflowError broken) { // a getMessage that throws, a classifier's own mistake
      return describe(Verdict.plain(Verdict.Kind.PERMANENT, "panic", "", "panic"), broken, true);
    }
  }

  private Verdict judge(Throwable e, boolean late) {
    HandlerException given = Rules.find(e, HandlerException.class);
    if (late && !outlivesDeadline(given)) return describe(Verdict.plain(Verdict.Kind.TRANSIENT, "timeout", "", "timeout"), e, isPanic(e));
    if (given != null) return describe(explicit(given, given instanceof Poison p ? p.rule : EXPLICIT), e, false);
    for (Function<Throwable, HandlerException> ask : classifiers) {
      HandlerException answer = ask.apply(e);
      if (answer != null) return describe(explicit(answer, "classifier"), e, false);
    }
    Verdict v = Rules.builtin(e);
    if (v != null) return describe(v, e, false);
    if (isPanic(e)) return describe(Verdict.plain(Verdict.Kind.PERMANENT, "panic", e.toString(), "panic"), e, true);
    return describe(Verdict.plain(Verdict.Kind.PERMANENT, "permanent", "", "unknown"), e, true);
  }

  private static Verdict explicit(HandlerException e, String rule) {
    Duration wish = Duration.ZERO;
    if (e instanceof Transient t) {
      Transient asked = Rules.find(t, x -> x instanceof Transient in && in.retryAfter() != null ? in : null);
      if (asked != null && !asked.retryAfter().isNegative()) wish = asked.retryAfter();
    }
    Verdict.Kind kind =
        e instanceof Transient ? Verdict.Kind.TRANSIENT : e instanceof Drop ? Verdict.Kind.DROP : Verdict.Kind.PERMANENT;
    String reason = e instanceof Transient ? "transient" : e instanceof Drop ? "" : e instanceof Poison ? "poison" : "permanent";
    return new Verdict(kind, reason, e.code(), "", wish, List.of(), "", rule, List.of());
  }

  /** Said on purpose, and not what a call that was cut off would say. */
  private static boolean outlivesDeadline(HandlerException given) {
    return given instanceof Transient t ? t.retryAfter() != null : given != null;
  }

  /** What a bug throws rather than the world. */
  private static boolean isPanic(Throwable e) {
    return e instanceof Error || e instanceof NullPointerException || e instanceof ClassCastException
        || e instanceof IndexOutOfBoundsException || e instanceof ArithmeticException;
  }

  /** Fills in what v lacks from e. */
  private static Verdict describe(Verdict v, Throwable e, boolean withStack) {
    String message = v.message().isEmpty() ? HandlerException.textOf(e) : v.message();
    String code = v.code().isEmpty() ? Rules.code(e) : v.code();
    return new Verdict(v.kind(), v.reason(), code, message, v.retryAfter(), causes(e), withStack ? stack(e) : "", v.rule(), List.of());
  }

  /** The texts of what e was caused by, outermost first, without repetitions. */
  private static List<String> causes(Throwable e) {
    List<String> list = new ArrayList<>();
    String[] last = {HandlerException.textOf(e)};
    Rules.find(e, cause -> {
      String text = HandlerException.textOf(cause);
      if (!text.equals(last[0])) list.add(text);
      last[0] = text;
      return list.size() == MAX_CAUSES ? cause : null;
    });
    return list;
  }

  /** As printStackTrace has it, which recurses as deep as the causes are. */
  private static String stack(Throwable e) {
    StringBuilder text = new StringBuilder();
    Rules.find(e, cause -> {
      text.append(text.length() == 0 ? "" : "Caused by: ").append(cause).append('\n');
      for (StackTraceElement at : cause.getStackTrace()) text.append("\tat ").append(at).append('\n');
      return text.length() > Frames.MAX_STACK ? cause : null;
    });
    return text.toString();
  }
}
