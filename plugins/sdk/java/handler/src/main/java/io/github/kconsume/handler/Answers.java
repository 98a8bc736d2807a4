package io.github.kconsume.handler;

import java.util.ArrayList;
import java.util.List;

/** What has been answered since the last time. */
final class Answers {
  final List<Long> acked = new ArrayList<>();
  final List<Answer> verdicts = new ArrayList<>();
  final List<Long> ended = new ArrayList<>();

  record Answer(long handle, Verdict verdict, boolean late) {}

  boolean isEmpty() {
    return acked.isEmpty() && verdicts.isEmpty() && ended.isEmpty();
  }
}
