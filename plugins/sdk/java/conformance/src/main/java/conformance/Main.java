package conformance;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.github.kconsume.handler.Batch;
import io.github.kconsume.handler.Config;
import io.github.kconsume.handler.Drop;
import io.github.kconsume.handler.Header;
import io.github.kconsume.handler.Kconsume;
import io.github.kconsume.handler.Message;
import io.github.kconsume.handler.OutputRecord;
import io.github.kconsume.handler.Permanent;
import io.github.kconsume.handler.Transient;
import io.grpc.Status;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeoutException;

/** The handler of test/conformance, whose README.md says what each command does. */
public final class Main {
  private static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  private Main() {}

  public static void main(String[] args) throws Exception {
    List<String> modes = Arrays.asList(args);
    Config config = Config.of("conformance").version("1.2.3").topics("conformance.a", "conformance.b");
    System.out.println("before serve");
    if (modes.contains("slow")) Thread.sleep(200);
    if (modes.contains("batch")) Kconsume.serveBatches(config.maxBatch(100), Main::handle);
    else Kconsume.serve(config, Main::handle);
  }

  /** Ways to fail of the handler's own. */
  private static final class Odd extends RuntimeException {
    private static final long serialVersionUID = 1;

    Odd(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /** As clients of HTTP have it. */
  private static final class HttpException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final int status;

    HttpException(int status) {
      super("HTTP " + status);
      this.status = status;
    }

    @SuppressWarnings("unused") // what the SDK looks for
    public int statusCode() {
      return status;
    }
  }

  /** A command and the rest of its line. */
  private record Command(String name, String rest) {
    static Command of(Message m) {
      byte[] line = m.headers().stream().filter(h -> h.key().equals("do")).findFirst().map(Header::value).orElse(null);
      String text = line == null ? "ack" : new String(line, StandardCharsets.UTF_8);
      String[] parts = text.split(" ", 2);
      return new Command(parts[0], parts.length > 1 ? parts[1] : "");
    }

    /** So many words, the last of which may hold spaces. */
    String[] words(int n) {
      String[] found = rest.split(" ", n);
      String[] all = Arrays.copyOf(found, n);
      for (int i = found.length; i < n; i++) all[i] = "";
      return all;
    }

    Path file(int i, int n) {
      return Path.of(words(n)[i]);
    }
  }

  private static void handle(Message m) throws Exception {
    Command c = Command.of(m);
    switch (c.name) {
      case "causes" -> {
        String[] w = c.words(3);
        throw new Permanent(w[0], new IllegalStateException(w[1], new IllegalStateException(w[2])));
      }
      case "wrapped" -> throw new Odd("own words", later(c));
      case "json" -> m.valueAs(bytes -> JSON.readValue(bytes, Object.class));
      case "badtext" -> throw new Permanent("bad \ud83d text");
      case "longtext" -> throw new Permanent("x".repeat(Integer.parseInt(c.rest)));
      case "unknown" -> throw new Odd(c.rest, null);
      case "typed" -> typed(c.rest);
      case "tell" -> tell(m);
      case "emit-bytes" -> m.emit(new OutputRecord("out", null, new byte[Integer.parseInt(c.rest)]));
      case "emit-then-fail" -> {
        m.emit(new OutputRecord("out", null, new byte[1]));
        throw new Permanent(c.rest);
      }
      case "say" -> {
        System.out.println("out " + c.rest);
        System.err.println("err " + c.rest);
      }
      default -> {
        if (!plain(m, c) && !waits(m, c) && !ends(c)) throw new Permanent("no such command");
      }
    }
  }

  /** What single records and batches have in common. */
  private static boolean plain(Message m, Command c) {
    switch (c.name) {
      case "ack" -> { }
      case "transient" -> throw later(c);
      case "permanent" -> throw new Permanent(c.words(2)[1]).code(c.words(2)[0]);
      case "drop" -> throw new Drop(c.rest);
      case "echo" -> m.emit(new OutputRecord("echo", m.key(), m.value(), m.headers()));
      case "emit" -> {
        for (int i = 0; i < Integer.parseInt(c.rest); i++) m.emit(new OutputRecord("out", null, utf8(i)));
      }
      default -> {
        return false;
      }
    }
    return true;
  }

  private static Transient later(Command c) {
    String[] w = c.words(2);
    long ms = Long.parseLong(w[0]);
    Transient t = new Transient(w[1]);
    return ms > 0 ? t.retryAfter(Duration.ofMillis(ms)) : t;
  }

  private static boolean waits(Message m, Command c) throws Exception {
    switch (c.name) {
      case "gate" -> gate(c.file(0, 2), c.file(1, 2));
      case "gate-then-fail" -> {
        gate(c.file(0, 3), c.file(1, 3));
        throw new Transient(c.words(3)[2]);
      }
      case "wait" -> {
        create(c.file(0, 1));
        Thread.sleep(Long.MAX_VALUE);
      }
      case "leave" -> {
        create(c.file(0, 1));
        while (!m.isDraining()) Thread.sleep(2);
        throw new InterruptedException("kconsume asks for the end");
      }
      case "block" -> {
        create(c.file(0, 1));
        while (true) pause(Long.MAX_VALUE);
      }
      case "spin" -> {
        create(c.file(0, 1));
        while (true) Thread.onSpinWait();
      }
      default -> {
        return false;
      }
    }
    return true;
  }

  private static boolean ends(Command c) throws Exception {
    switch (c.name) {
      case "panic" -> throw new AssertionError(c.rest);
      case "exit" -> Runtime.getRuntime().halt(Integer.parseInt(c.rest));
      case "exit-once" -> {
        if (Files.exists(c.file(0, 1))) return true;
        create(c.file(0, 1));
        Runtime.getRuntime().halt(3);
      }
      case "kill" -> {
        new ProcessBuilder("kill", "-9", Long.toString(ProcessHandle.current().pid())).start();
        while (true) pause(Long.MAX_VALUE);
      }
      default -> {
        return false;
      }
    }
    return true;
  }

  private static void gate(Path begun, Path open) throws IOException {
    create(begun);
    while (!Files.exists(open)) pause(2);
  }

  private static void create(Path file) throws IOException {
    Files.write(file, new byte[0]);
  }

  /** Sleeps, interrupted or not. */
  private static void pause(long ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException e) {
      // it waits whatever else happens
    }
  }

  private static byte[] utf8(Object o) {
    return o.toString().getBytes(StandardCharsets.UTF_8);
  }

  private static void tell(Message m) {
    List<Header> told = new ArrayList<>();
    told.add(new Header("id", utf8(m.id())));
    told.add(new Header("topic", utf8(m.topic())));
    told.add(new Header("partition", utf8(m.partition())));
    told.add(new Header("offset", utf8(m.offset())));
    told.add(new Header("time", utf8(m.time() == null ? -1 : m.time().toEpochMilli())));
    told.add(new Header("attempt", utf8(m.attempt())));
    told.add(new Header("max_attempts", utf8(m.maxAttempts())));
    told.add(new Header("stage", utf8(m.stage())));
    told.add(new Header("deadline", utf8(m.timeLeft().map(d -> d.toMillis() + 1).orElse(0L))));
    m.emit(new OutputRecord("told", null, null, told));
  }

  private static void typed(String kind) throws Exception {
    String detail = kind.substring(kind.indexOf('-') + 1);
    switch (kind.split("-")[0]) {
      case "timeout" -> throw new TimeoutException("no answer from the warehouse");
      case "refused" -> refused();
      case "json" -> JSON.readTree("{\"a\":");
      case "status" -> throw new HttpException(Integer.parseInt(detail));
      case "sqlstate" -> throw new SQLException("refused by the database", detail);
      case "grpc" -> throw Status.fromCodeValue(Integer.parseInt(detail)).withDescription("no").asRuntimeException();
      default -> throw new Permanent("no such kind");
    }
  }

  private static void refused() throws IOException {
    int port;
    try (ServerSocket s = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = s.getLocalPort();
    }
    new Socket("127.0.0.1", port).close();
  }

  private static void handle(Batch batch) throws Exception {
    Transient whole = null;
    for (int i = 0; i < batch.size(); i++) {
      Message m = batch.messages().get(i);
      Command c = Command.of(m);
      switch (c.name) {
        case "batch-error" -> whole = new Transient(c.rest);
        case "batch-size" -> m.emit(new OutputRecord("size", null, utf8(batch.size())));
        case "gate" -> waits(m, c);
        case "exit", "panic" -> ends(c);
        default -> {
          try {
            plain(m, c);
          } catch (RuntimeException e) {
            batch.fail(i, e);
          }
        }
      }
    }
    if (whole != null) throw whole;
  }
}
