package io.github.kconsume.handler;

import java.util.ArrayList;
import java.util.List;

/** A record as it came. */
final class Delivery {
  long handle;
  String id = "";
  String topic = "";
  int partition;
  long offset;
  long timeMs;
  byte[] key;
  byte[] value;
  List<Header> headers = List.of();
  int attempt;
  int maxAttempts;
  String stage = "";
  String trace = ""; // of this delivery's span; empty = none
  String traceState = "";
  long deadlineMs; // from the start of its first call; 0 = none

  /** Of that deadline, on the clock of System.nanoTime; 0 = none, or not started. Owned by the pool. */
  long due;

  void addHeader(Header h) {
    if (headers.isEmpty()) headers = new ArrayList<>();
    headers.add(h);
  }

  /** The last of several attempts: the company that a record is in must not be what makes it a dead letter. */
  boolean lonely() {
    return attempt > 1 && attempt >= maxAttempts;
  }
}
