package io.github.kconsume.handler;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonParser;
import com.sun.net.httpserver.HttpServer;
import io.grpc.Metadata;
import io.grpc.Status;
import io.github.kconsume.handler.Verdict.Kind;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.sql.SQLException;
import java.sql.SQLIntegrityConstraintViolationException;
import java.sql.SQLTransientConnectionException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Every rule, with the real exception of a real library where there is one. */
@Timeout(60)
class RulesTest {
  private static Verdict of(Throwable e) {
    return new Classify(List.of()).verdict(e, false, false, false);
  }

  private static Verdict late(Throwable e) {
    return new Classify(List.of()).verdict(e, false, false, true);
  }

  private static Throwable thrown(Callable<?> code) {
    return assertThrows(Throwable.class, code::call);
  }

  private static void is(Throwable e, Kind kind, String reason, String rule) {
    Verdict v = of(e);
    assertEquals(List.of(kind, reason, rule), List.of(v.kind(), v.reason(), v.rule()), v.toString());
  }

  @Test
  void explicitHoweverDeep() {
    Verdict v = of(new Transient("later", new IOException("gone")).retryAfter(Duration.ofMillis(1500)).code("BUSY"));
    assertEquals(new Verdict(Kind.TRANSIENT, "transient", "BUSY", "later", Duration.ofMillis(1500), List.of("gone"), "", "explicit", List.of()), v);
    is(new Permanent(new IOException("gone")), Kind.PERMANENT, "permanent", "explicit");
    assertEquals(List.of(), of(new Permanent(new IOException("gone"))).causes());
    is(new Drop("a test order"), Kind.DROP, "", "explicit");
    v = of(new IllegalStateException("own words", new RuntimeException("x", new Transient("busy").retryAfter(Duration.ofSeconds(2)))));
    assertEquals("own words", v.message());
    assertEquals(Duration.ofSeconds(2), v.retryAfter());
    assertEquals(List.of("x", "busy"), v.causes());
    assertEquals(Duration.ofSeconds(3), of(new Transient("outer", new Transient("inner").retryAfter(Duration.ofSeconds(3)))).retryAfter());
    assertEquals(Duration.ZERO, of(new Transient("x").retryAfter(Duration.ofSeconds(-3))).retryAfter());
  }

  @Test
  void pastTheDeadlineOnlyWhatIsSaidOnPurposeCounts() {
    for (Throwable e : List.of(new IOException("x"), new Transient("x"), new AssertionError("x"), new InterruptedException())) {
      assertEquals("timeout", late(e).reason());
      assertEquals(Kind.TRANSIENT, late(e).kind());
    }
    assertEquals(Kind.PERMANENT, late(new Permanent("x")).kind());
    assertEquals(Kind.DROP, late(new Drop("x")).kind());
    assertEquals("explicit", late(new Transient("x").retryAfter(Duration.ZERO)).rule());
    assertEquals(Verdict.CANCELLED, new Classify(List.of()).verdict(new Permanent("x"), true, false, true));
    assertEquals(Verdict.CANCELLED, new Classify(List.of()).verdict(new RuntimeException(new InterruptedException()), false, true, false));
    assertEquals("timeout", new Classify(List.of()).verdict(new InterruptedException(), false, true, true).rule());
  }

  @Test
  void classifiersComeFirst() {
    Classify c = new Classify(List.of(e -> null, e -> e instanceof IOException ? new Permanent(e).code("io") : null, e -> {
      if (e instanceof ArithmeticException) throw new IllegalStateException("mistake");
      return null;
    }));
    Verdict v = c.verdict(new IOException("x"), false, false, false);
    assertEquals(List.of(Kind.PERMANENT, "classifier", "io", "x"), List.of(v.kind(), v.rule(), v.code(), v.message()));
    assertEquals("unknown", c.verdict(new IllegalStateException("x"), false, false, false).rule());
    assertEquals("panic", c.verdict(new ArithmeticException("x"), false, false, false).rule());
  }

  @Test
  void timeAndCancelling() throws Exception {
    is(thrown(() -> new CompletableFuture<>().get(1, TimeUnit.MILLISECONDS)), Kind.TRANSIENT, "transient", "deadline");
    is(new CompletionException(new TimeoutException()), Kind.TRANSIENT, "transient", "deadline");
    is(new CancellationException(), Kind.TRANSIENT, "transient", "canceled");
    Thread.currentThread().interrupt();
    is(thrown(() -> {
      Thread.sleep(1000);
      return null;
    }), Kind.TRANSIENT, "transient", "canceled");
  }

  @Test
  void network() throws Exception {
    int port;
    try (ServerSocket s = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = s.getLocalPort();
    }
    HttpClient http = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(10)).build();
    is(thrown(() -> new Socket("127.0.0.1", port)), Kind.TRANSIENT, "transient", "network");
    is(thrown(() -> http.send(HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port)).build(), BodyHandlers.discarding())), Kind.TRANSIENT, "transient", "network");
    is(thrown(() -> new Socket("no-such-host.invalid", 1)), Kind.TRANSIENT, "transient", "network");
    try (ServerSocket silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress()); Socket s = new Socket(InetAddress.getLoopbackAddress(), silent.getLocalPort())) {
      s.setSoTimeout(1);
      is(thrown(() -> s.getInputStream().read()), Kind.TRANSIENT, "transient", "network");
      HttpRequest slow = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + silent.getLocalPort())).timeout(Duration.ofMillis(1)).build();
      is(thrown(() -> http.send(slow, BodyHandlers.discarding())), Kind.TRANSIENT, "transient", "network");
    }
    try (ServerSocket hangsUp = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      CompletableFuture<?> answer = http.sendAsync(HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + hangsUp.getLocalPort())).build(), BodyHandlers.discarding());
      hangsUp.accept().close();
      hangsUp.close(); // the client tries a second time
      assertEquals(Kind.TRANSIENT, of(thrown(answer::get)).kind());
    }
    is(new EOFException(), Kind.TRANSIENT, "transient", "eof");
    is(thrown(() -> new FileInputStream("/no/such/file")), Kind.PERMANENT, "permanent", "unknown");
  }

  /** What the clients of HTTP have in common is a method. */
  static final class HttpException extends RuntimeException {
    private static final long serialVersionUID = 1;
    final int status;

    HttpException(int status) {
      this.status = status;
    }

    public int getStatusCode() {
      return status;
    }
  }

  @Test
  void status() {
    for (int n : new int[] {0, 408, 425, 429, 500, 503}) is(new HttpException(n), Kind.TRANSIENT, "transient", "status");
    for (int n : new int[] {400, 404, 422}) is(new RuntimeException(new HttpException(n)), Kind.PERMANENT, "permanent", "status");
    is(new HttpException(302), Kind.PERMANENT, "permanent", "unknown");
    assertEquals("429", of(new HttpException(429)).code());
  }

  @Test
  void sqlState() {
    for (String state : List.of("08006", "40001", "53300", "57P01")) is(new SQLException("x", state), Kind.TRANSIENT, "transient", "sqlstate");
    for (String state : List.of("22P02", "23505", "42601")) is(new SQLException("x", state), Kind.PERMANENT, "permanent", "sqlstate");
    is(new SQLException("x", "57014"), Kind.PERMANENT, "permanent", "unknown");
    is(new SQLException("x"), Kind.PERMANENT, "permanent", "unknown");
    is(new SQLTransientConnectionException("x"), Kind.TRANSIENT, "transient", "temporary");
    SQLException batch = new SQLException("batch failed");
    batch.setNextException(new SQLIntegrityConstraintViolationException("duplicate", "23505"));
    is(batch, Kind.PERMANENT, "permanent", "sqlstate");
    assertEquals("23505", of(batch).code());
  }

  @Test
  void grpc() {
    for (Status s : List.of(Status.CANCELLED, Status.DEADLINE_EXCEEDED, Status.RESOURCE_EXHAUSTED, Status.ABORTED, Status.INTERNAL, Status.UNAVAILABLE)) {
      is(s.asRuntimeException(), Kind.TRANSIENT, "transient", "grpc");
    }
    for (Status s : List.of(Status.INVALID_ARGUMENT, Status.NOT_FOUND, Status.UNIMPLEMENTED, Status.UNAUTHENTICATED)) {
      is(s.asException(), Kind.PERMANENT, "permanent", "grpc");
    }
    is(Status.UNKNOWN.asRuntimeException(), Kind.PERMANENT, "permanent", "unknown");
    assertEquals("InvalidArgument", of(Status.INVALID_ARGUMENT.asRuntimeException()).code());
    assertEquals("Canceled", of(Status.CANCELLED.asRuntimeException()).code());

    byte[] info = new ProtoWriter().number(1, 9)
        .message(3, new ProtoWriter().text(1, "type.googleapis.com/google.rpc.Help").bytes(2, new byte[0]))
        .message(3, new ProtoWriter().text(1, "type.googleapis.com/google.rpc.RetryInfo")
            .message(2, new ProtoWriter().message(1, new ProtoWriter().number(1, 90).number(2, 500_000_000))))
        .toByteArray();
    Metadata trailers = new Metadata();
    trailers.put(Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER), info);
    Verdict v = of(Status.FAILED_PRECONDITION.asRuntimeException(trailers));
    assertEquals(List.of(Kind.TRANSIENT, Duration.ofMillis(90_500)), List.of(v.kind(), v.retryAfter()));
    for (int n = 1; n < info.length; n++) { // cut off anywhere it says nothing, or all
      Metadata cut = new Metadata();
      cut.put(Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER), java.util.Arrays.copyOf(info, n));
      assertEquals("grpc", of(Status.FAILED_PRECONDITION.asRuntimeException(cut)).rule());
    }
  }

  @Test
  void decodersAndBugs() {
    is(thrown(() -> JsonParser.parseString("{\"a\":")), Kind.PERMANENT, "poison", "json");
    for (Throwable bug : List.of(thrown(() -> ((Object) null).toString()), thrown(() -> List.of().get(0)), thrown(() -> 1 / (int) Integer.valueOf(0)), new AssertionError("x"), new StackOverflowError())) {
      is(bug, Kind.PERMANENT, "panic", "panic");
      assertTrue(of(bug).message().startsWith(bug.getClass().getName()));
      assertFalse(of(bug).stack().isEmpty());
    }
    is(new IllegalStateException("odd"), Kind.PERMANENT, "permanent", "unknown");
    assertTrue(of(new IllegalStateException("odd")).stack().contains("RulesTest"));
    assertEquals("java.lang.IllegalStateException", of(new IllegalStateException()).message());
  }

  @Test
  void hostileExceptions() {
    is(new RuntimeException() {
      private static final long serialVersionUID = 1;

      @Override
      public String getMessage() {
        throw new IllegalStateException("no");
      }
    }, Kind.PERMANENT, "panic", "panic");
    RuntimeException a = new RuntimeException("a");
    RuntimeException b = new RuntimeException("b", a);
    a.initCause(b);
    assertEquals(List.of("b"), of(a).causes());
    Throwable deep = new RuntimeException("0");
    for (int i = 1; i < 5000; i++) deep = new RuntimeException(Integer.toString(i), deep);
    assertEquals(16, of(deep).causes().size());
  }

  @Test
  void aRealServerThatSaysNo() throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/", x -> {
      x.sendResponseHeaders(503, -1);
      x.close();
    });
    server.start();
    try {
      IOException e = assertThrows(IOException.class, () -> URI.create("http://127.0.0.1:" + server.getAddress().getPort()).toURL().openStream());
      is(e, Kind.TRANSIENT, "transient", "network"); // the JDK's own client has no type for it
    } finally {
      server.stop(0);
    }
  }
}
