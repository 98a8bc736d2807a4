package io.github.kconsume.handler;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.kconsume.handler.Verdict.Kind;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Handlers over a real connection, in this process. */
@Timeout(60)
class HandlerTest {
  private static final Config CONFIG = Config.of("test");

  private static List<Verdict> run(Handler h, TestRecord... records) {
    return Testing.of(CONFIG, h).run(records);
  }

  private static TestRecord[] records(int n) {
    TestRecord[] all = new TestRecord[n];
    Arrays.setAll(all, i -> TestRecord.of(Integer.toString(i)));
    return all;
  }

  private static List<Kind> kinds(List<Verdict> list) {
    return list.stream().map(Verdict::kind).toList();
  }

  @Test
  void aMessageHasAllThatTheRecordHas() {
    AtomicReference<Message> seen = new AtomicReference<>();
    Header odd = new Header(new byte[] {'x', (byte) 0xff}, null);
    run(seen::set, TestRecord.empty().id("an id").topic("größe").partition(3).offset(1L << 52).key("").time(Instant.ofEpochMilli(5))
        .attempt(2, 4).stage("retry.5s").header(new Header("a", new byte[0])).header(odd).timeout(Duration.ofMinutes(1)));
    Message m = seen.get();
    assertEquals(List.of("an id", "größe", 3, 1L << 52, 2, 4, "retry.5s"), List.of(m.id(), m.topic(), m.partition(), m.offset(), m.attempt(), m.maxAttempts(), m.stage()));
    assertArrayEquals(new byte[0], m.key());
    assertNull(m.value());
    assertEquals(Instant.ofEpochMilli(5), m.time());
    assertEquals(List.of(new Header("a", new byte[0]), odd), m.headers());
    assertEquals("x\ufffd", m.headers().get(1).key());
    assertEquals(odd, m.header("x\ufffd").orElseThrow());
    assertTrue(m.header("b").isEmpty());
    assertTrue(m.timeLeft().orElseThrow().compareTo(Duration.ofMinutes(1)) <= 0);
    run(seen::set, TestRecord.empty().time(null));
    assertNull(seen.get().time());
    assertTrue(seen.get().timeLeft().isEmpty());
  }

  @Test
  void theTraceIsTheDeliverysElseTheRecordsOwn() {
    List<List<String>> seen = new ArrayList<>();
    Handler h = m -> seen.add(List.of(m.trace(), m.traceState()));
    String own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    Header first = new Header("traceparent", new byte[] {'x'});
    Header last = new Header("traceparent", own.getBytes(java.nio.charset.StandardCharsets.US_ASCII));
    Header state = new Header("tracestate", new byte[] {'a', '=', '1'});
    run(h, TestRecord.empty().header(first).header(last).header(state));
    run(h, TestRecord.empty().header(last).header(state).trace("00-delivery", ""));
    run(h, TestRecord.empty().header(last).header(state).trace("00-delivery", "b=2"));
    run(h, TestRecord.empty().header(new Header("traceparent", null)));
    assertEquals(List.of(List.of(own, "a=1"), List.of("00-delivery", ""), List.of("00-delivery", "b=2"), List.of("", "")), seen);
  }

  @Test
  void emittedRecordsKeepNullAndEmptyApart() {
    Verdict v = run(m -> {
      m.emit(new OutputRecord("out", null, new byte[0]));
      m.emit(new OutputRecord("out", new byte[] {1}, null, m.headers()));
    }, TestRecord.empty().header(new Header("h", null)).header(new Header("h", new byte[0]))).get(0);
    assertEquals(Kind.ACK, v.kind());
    assertNull(v.emitted().get(0).key());
    assertArrayEquals(new byte[0], v.emitted().get(0).value());
    assertNull(v.emitted().get(1).value());
    assertEquals(List.of(new Header("h", null), new Header("h", new byte[0])), v.emitted().get(1).headers());
  }

  @Test
  void largeVerdictsGoAloneATooLargeOneIsTold() {
    int[] sizes = {1 << 20, 3 << 20, 10, 129 << 20, 20 << 20};
    List<Verdict> all = run(m -> m.emit(new OutputRecord("out", null, new byte[sizes[(int) m.offset()]])), records(5));
    for (int i : new int[] {0, 1, 2, 4}) assertEquals(sizes[i], all.get(i).emitted().get(0).value().length);
    assertEquals("emitted-size", all.get(3).rule());
  }

  @Test
  void whatAParserThrowsIsPoison() {
    List<Verdict> all = run(m -> m.valueAs(b -> com.google.gson.JsonParser.parseString(new String(b))), TestRecord.of("{}"), TestRecord.of("{"), TestRecord.empty());
    assertEquals(List.of(Kind.ACK, Kind.PERMANENT, Kind.PERMANENT), kinds(all));
    assertEquals(List.of("poison", "json", "poison", "decode"), List.of(all.get(1).reason(), all.get(1).rule(), all.get(2).reason(), all.get(2).rule()));
    assertEquals("decode", run(m -> m.valueAs(b -> b[7]), TestRecord.of("x")).get(0).rule());
  }

  @Test
  void asManyCallsAtOnceAsAskedFor() {
    AtomicInteger running = new AtomicInteger();
    AtomicInteger most = new AtomicInteger();
    CyclicBarrier together = new CyclicBarrier(5);
    Testing.of(CONFIG, m -> {
      most.accumulateAndGet(running.incrementAndGet(), Math::max);
      together.await();
      running.decrementAndGet();
    }).concurrency(5).run(records(50));
    assertEquals(5, most.get());
  }

  @Test
  void aDeadlineInterruptsAndWhoHeedsItHasHisSay() {
    Duration soon = Duration.ofMillis(20);
    List<Verdict> all = run(m -> {
      try {
        Thread.sleep(60_000);
      } catch (InterruptedException e) {
        assertTrue(m.isCancelled());
        assertFalse(Thread.currentThread().isInterrupted());
        if (m.offset() == 1) throw new Permanent("on purpose");
        if (m.offset() == 2) throw e;
      }
    }, TestRecord.empty().timeout(soon), TestRecord.empty().timeout(soon), TestRecord.empty().timeout(soon));
    // On a machine that is busy for longer than the grace, each may be late instead.
    for (int i = 0; i < 3; i++) {
      Verdict v = all.get(i);
      boolean late = v.message().startsWith("no answer within");
      assertTrue(late || v.kind() == List.of(Kind.ACK, Kind.PERMANENT, Kind.TRANSIENT).get(i), v.toString());
      if (i == 2) assertEquals("timeout", v.rule());
    }
  }

  @Test
  void anInterruptIsNotLeftToTheNextCall() {
    List<Boolean> interrupted = Collections.synchronizedList(new ArrayList<>());
    Testing.of(CONFIG, m -> {
      interrupted.add(Thread.currentThread().isInterrupted());
      Thread.currentThread().interrupt();
    }).concurrency(1).run(records(3));
    assertEquals(List.of(false, false, false), interrupted);
  }

  @Test
  void lateCallsEndLaterAndStarveNobody() throws Exception {
    Map<Long, CountDownLatch> gates = new HashMap<>();
    for (long h = 1; h <= 3; h++) gates.put(h, new CountDownLatch(1));
    Handler deaf = m -> {
      CountDownLatch gate = gates.get(m.offset());
      while (gate != null && gate.getCount() > 0) {
        try {
          gate.await();
        } catch (InterruptedException e) {
          // waits on
        }
      }
    };
    try (Host host = new Host(Runner.of(deaf, CONFIG))) {
      TestRecord stuck = TestRecord.empty().timeout(Duration.ofMillis(20));
      host.send(2, Map.of(1L, stuck, 2L, stuck, 3L, stuck));
      host.until(() -> host.answers.size() == 3);
      host.send(0, Map.of(4L, TestRecord.empty(), 5L, TestRecord.empty()));
      host.until(() -> host.answers.size() == 5);
      assertEquals("timeout late", host.answers.get(1L));
      assertEquals("ack", host.answers.get(5L));
      assertEquals(List.of(), host.ended);
      gates.get(2L).countDown();
      host.until(() -> host.ended.equals(List.of(2L)));
      host.drain(); // does not wait for the others
      gates.values().forEach(CountDownLatch::countDown);
    }
  }

  @Test
  void cancelling() throws Exception {
    CountDownLatch begun = new CountDownLatch(2);
    CountDownLatch open = new CountDownLatch(1);
    Handler h = m -> {
      begun.countDown();
      if (m.offset() == 1) {
        while (true) {
          try {
            open.await();
            return;
          } catch (InterruptedException e) {
            // done all the same
          }
        }
      }
      Thread.sleep(60_000);
    };
    try (Host host = new Host(Runner.of(h, CONFIG))) {
      Map<Long, TestRecord> three = new java.util.TreeMap<>();
      for (long i = 1; i <= 3; i++) three.put(i, TestRecord.empty().timeout(Duration.ofMinutes(1)));
      host.send(2, three);
      begun.await();
      host.cancel(3, 99);
      host.until(() -> host.answers.size() == 1);
      host.cancel(1, 2);
      host.until(() -> host.answers.size() == 2);
      open.countDown();
      host.until(() -> host.answers.size() == 3);
      assertEquals(Map.of(1L, "ack", 2L, "cancelled", 3L, "cancelled"), host.answers);
    }
  }

  @Test
  void drainingACallMayHandItsRecordBackAndCloseIsCalledOnce() throws Exception {
    AtomicInteger closed = new AtomicInteger();
    Handler h = m -> {
      while (!m.isDraining()) Thread.sleep(1);
      if (m.offset() == 1) throw new InterruptedException();
    };
    try (Host host = new Host(Runner.of(h, CONFIG), CONFIG.onClose(closed::incrementAndGet))) {
      host.send(0, Map.of(1L, TestRecord.empty(), 2L, TestRecord.empty()));
      host.drain();
      assertEquals(Map.of(1L, "cancelled", 2L, "ack"), host.answers);
      assertEquals(1, closed.get());
    }
  }

  @Test
  void batchesAreWhatWaits() {
    List<Integer> sizes = new ArrayList<>();
    List<Verdict> all = Testing.ofBatches(CONFIG.maxBatch(10), batch -> {
      sizes.add(batch.size());
      for (int i = 0; i < batch.size(); i++) if (batch.messages().get(i).offset() % 5 == 0) batch.fail(i, new Drop("odd"));
    }).concurrency(1).run(records(25));
    assertEquals(List.of(10, 10, 5), sizes);
    for (int i = 0; i < 25; i++) assertEquals(i % 5 == 0 ? Kind.DROP : Kind.ACK, all.get(i).kind());
  }

  @Test
  void aBatchFailsOnceWithWhatMayPass() {
    AtomicInteger calls = new AtomicInteger();
    List<Verdict> all = Testing.ofBatches(CONFIG, batch -> {
      calls.incrementAndGet();
      batch.fail(0, new Permanent("mine"));
      batch.messages().get(1).emit(new OutputRecord("out", null, null));
      throw new Transient("all");
    }).run(records(3));
    assertEquals(1, calls.get());
    assertEquals(List.of(Kind.PERMANENT, Kind.TRANSIENT, Kind.TRANSIENT), kinds(all));
    assertEquals(List.of(), all.get(1).emitted());
  }

  @Test
  void aBugInABatchIsOnlyTheGuiltyRecords() {
    List<Integer> sizes = new ArrayList<>();
    List<Verdict> all = Testing.ofBatches(CONFIG, batch -> {
      sizes.add(batch.size());
      for (Message m : batch.messages()) {
        m.emit(new OutputRecord("out", null, null));
        if (m.offset() == 1) throw new IllegalStateException("bug");
      }
    }).concurrency(1).run(TestRecord.empty(), TestRecord.empty(), TestRecord.empty(), TestRecord.empty().attempt(3, 3));
    assertEquals(List.of(3, 1, 1, 1, 1), sizes);
    assertEquals(List.of(Kind.ACK, Kind.PERMANENT, Kind.ACK, Kind.ACK), kinds(all));
    assertEquals(1, all.get(0).emitted().size());
  }

  @Test
  void beatsComeBack() throws Exception {
    try (Host host = new Host(Runner.of((Handler) m -> {}, CONFIG))) {
      CompletableFuture<Long> echo = new CompletableFuture<>();
      StreamObserver<byte[]> control = host.connection.control(bytes -> {
        ProtoReader r = new ProtoReader(bytes);
        r.next();
        echo.complete(r.number());
      });
      control.onNext(new ProtoWriter().number(1, 7).toByteArray());
      assertEquals(7L, echo.join());
    }
  }

  /** The host's side, frame by frame. */
  private static final class Host implements AutoCloseable {
    final Testing.Connection connection;
    final Map<Long, String> answers = new HashMap<>(); // guarded by this: "ack", or a rule and whether it is late
    final List<Long> ended = new ArrayList<>(); // guarded by this
    private final CompletableFuture<Void> over = new CompletableFuture<>();
    private final StreamObserver<byte[]> out;

    Host(Runner runner) throws Exception {
      this(runner, CONFIG);
    }

    Host(Runner runner, Config config) throws Exception {
      connection = new Testing.Connection(config, runner);
      out = connection.deliver(this::take, over);
    }

    private synchronized void take(byte[] bytes) throws WireException {
      for (ProtoReader r = new ProtoReader(bytes); r.next(); ) {
        if (r.field() == 2) r.numbers(h -> note(h, "ack"));
        if (r.field() == 4) r.numbers(ended::add);
        if (r.field() != 3) continue;
        long handle = 0;
        String answer = "";
        for (ProtoReader v = r.message(); v.next(); ) {
          if (v.field() == 1) handle = v.number();
          if (v.field() == 9) answer = v.text();
          if (v.field() == 11) answer += " late";
        }
        note(handle, answer);
      }
      notifyAll();
    }

    private void note(long handle, String answer) {
      if (answers.put(handle, answer) != null) over.completeExceptionally(new AssertionError(handle + " is answered twice"));
    }

    void send(int concurrency, Map<Long, TestRecord> records) {
      ProtoWriter frame = new ProtoWriter().message(3, new ProtoWriter().number(1, concurrency));
      records.forEach((handle, r) -> frame.message(1, r.write(handle)));
      out.onNext(frame.toByteArray());
    }


    void cancel(int... handles) {
      out.onNext(new ProtoWriter().packed(4, Arrays.stream(handles).mapToObj(Long::valueOf).toList()).toByteArray());
    }

    void drain() {
      out.onNext(new ProtoWriter().flag(2, true).toByteArray());
      over.join();
    }

    synchronized void until(BooleanSupplier holds) throws InterruptedException {
      while (!holds.getAsBoolean()) wait();
    }

    @Override
    public void close() throws Exception {
      connection.close();
    }
  }
}
