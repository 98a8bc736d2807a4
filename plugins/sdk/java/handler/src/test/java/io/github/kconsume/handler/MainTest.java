package io.github.kconsume.handler;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Handlers as processes of their own, started as kconsume starts them. */
@Timeout(120)
class MainTest {
  private static final Map<String, String> COOKIE = Map.of("KCONSUME_HANDLER", "cc4f6a0e-handler-v1");

  /** What the processes run. */
  public static final class Program {
    public static void main(String[] args) {
      Config config = Config.of("orders").version("1.2.3").topics("orders.confirmed");
      Kconsume.serve(config, m -> {});
      System.out.println("a print");
      if (args.length > 0 && args[0].equals("spin")) while (true) Thread.onSpinWait();
    }
  }

  private Path dir;
  private RandomAccessFile lifeline;
  private final List<Process> started = new ArrayList<>();

  @BeforeEach
  void makeLifeline() throws Exception {
    dir = Files.createTempDirectory("kc");
    assertEquals(0, new ProcessBuilder("mkfifo", dir.resolve("lifeline").toString()).start().waitFor());
    lifeline = new RandomAccessFile(dir.resolve("lifeline").toFile(), "rw"); // without a reader "w" would wait for one
  }

  @AfterEach
  void end() throws Exception {
    lifeline.close();
    for (Process p : started) p.destroyForcibly().waitFor();
    try (var files = Files.walk(dir)) {
      for (Path p : files.sorted(java.util.Comparator.reverseOrder()).toList()) Files.delete(p);
    }
  }

  private Process start(Map<String, String> env, String redirect, String... args) throws IOException {
    Path sockets = Files.createDirectories(dir.resolve("s"));
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    List<String> command = new ArrayList<>(List.of("sh", "-c", "exec \"$@\" " + redirect, "sh",
        java, "-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp", System.getProperty("java.class.path"), Program.class.getName()));
    command.addAll(List.of(args));
    ProcessBuilder b = new ProcessBuilder(command);
    b.environment().put("PLUGIN_UNIX_SOCKET_DIR", sockets.toString());
    b.environment().putAll(env);
    Process p = b.redirectError(dir.resolve("stderr").toFile()).start();
    started.add(p);
    return p;
  }

  private String lifeline() {
    return "3<'" + dir.resolve("lifeline") + "'";
  }

  private String stderr() throws IOException {
    return Files.readString(dir.resolve("stderr"));
  }

  @Test
  void startedByHandItSaysWhatItIs() throws Exception {
    Process p = start(Map.of(), "");
    assertEquals(64, p.waitFor());
    assertEquals("", new String(p.getInputStream().readAllBytes()));
    for (String part : List.of("orders 1.2.3 is a kconsume handler for orders.confirmed", "kconsume-handler-orders", "--topic orders.confirmed --handler orders")) {
      assertTrue(stderr().contains(part), stderr());
    }
  }

  private void fails(Map<String, String> env, String redirect, String words) throws Exception {
    Process p = start(env, redirect);
    assertEquals(70, p.waitFor(), stderr());
    assertEquals("", new String(p.getInputStream().readAllBytes()));
    assertTrue(stderr().startsWith("fatal error: handler orders: "), stderr());
    assertTrue(stderr().contains(words), stderr());
  }

  private static Map<String, String> with(String name, String value) {
    return Map.of("KCONSUME_HANDLER", COOKIE.get("KCONSUME_HANDLER"), name, value);
  }

  @Test
  void whatIsWrongAtTheStartIsSaid() throws Exception {
    fails(COOKIE, "3</dev/null", "descriptor 3 is not a pipe");
    fails(with("PLUGIN_UNIX_SOCKET_DIR", "/tmp/" + "x".repeat(100)), lifeline(), "more than 107: use a shorter runtime directory");
    fails(with("PLUGIN_UNIX_SOCKET_DIR", dir.resolve("no/such").toString()), lifeline(), "see whether the folder exists and may be written");
    fails(with("KCONSUME_TLS_FD", "77"), lifeline(), "KCONSUME_TLS_FD=\"77\" names no pipe");
  }

  @Test
  void theHandshakeIsAllThatStdoutGetsAndTheLifelineEndsIt() throws Exception {
    for (String arg : List.of("", "spin")) {
      Process p = start(COOKIE, lifeline(), arg);
      BufferedReader out = p.inputReader();
      String line = out.readLine();
      assertTrue(line != null && line.matches("1\\|1\\|unix\\|[^|]+\\|grpc\\|"), line + stderr());
      Path socket = Path.of(line.split("\\|")[3]);
      assertTrue(Files.exists(socket));
      for (String signal : List.of("-TERM", "-INT")) { // are left to kconsume
        new ProcessBuilder("kill", signal, Long.toString(p.pid())).start().waitFor();
      }
      lifeline.close();
      assertEquals(0, p.waitFor());
      assertEquals(null, out.readLine());
      assertTrue(stderr().contains("a print\n"));
      assertFalse(Files.exists(socket));
      lifeline = new RandomAccessFile(dir.resolve("lifeline").toFile(), "rw");
    }
  }
}
