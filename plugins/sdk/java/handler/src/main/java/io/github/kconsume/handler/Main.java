package io.github.kconsume.handler;

import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.nio.NioEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.handler.ssl.ClientAuth;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.net.UnixDomainSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;

/** A handler's process: its start, and its end. */
final class Main {
  // The handshake, as package wire of kconsume has it.
  private static final int CONTRACT = 1;
  private static final String COOKIE_KEY = "KCONSUME_HANDLER";
  private static final String COOKIE_VALUE = "cc4f6a0e-handler-v1";
  private static final int LIFELINE = 3; // a pipe that kconsume holds open
  private static final String TLS_FD = "KCONSUME_TLS_FD";

  static final int MAX_FRAME = 256 << 20; // received, in bytes
  private static final int WINDOW = 8 << 20; // of HTTP/2's flow control: frames of 1 MiB without waiting
  private static final int S_IFMT = 0170000; // the kind of a file in its mode
  private static final int S_IFIFO = 0010000;
  private static final int MAX_SOCKET_PATH = 107; // in bytes

  // As in sysexits.h.
  private static final int EX_USAGE = 64;
  private static final int EX_SOFTWARE = 70;

  /** Warns of each connection that a unix socket has no SO_KEEPALIVE. Held here, or its level would be forgotten. */
  private static final Logger BOOTSTRAP = Logger.getLogger("io.grpc.netty.shaded.io.netty.bootstrap");

  private Main() {}

  static void serve(Config config, Runner runner) {
    if (!COOKIE_VALUE.equals(System.getenv(COOKIE_KEY))) {
      System.err.print(usage(config));
      System.exit(EX_USAGE);
    }
    PrintStream handshake = System.out;
    System.setOut(System.err); // a stray print must not stand between kconsume and the handshake
    try {
      for (String signal : List.of("TERM", "INT")) ignore(signal); // kconsume drains a handler before it stops it
      Path socket = Path.of(System.getenv().getOrDefault("PLUGIN_UNIX_SOCKET_DIR", "")).resolve("h" + ProcessHandle.current().pid());
      watchLifeline(socket);
      listen(socket, new Service(config.debug("1".equals(System.getenv("KCONSUME_HANDLER_DEBUG"))), runner));
      handshake.print("1|" + CONTRACT + "|unix|" + socket + "|grpc|\n"); // 1 is go-plugin's own protocol
      handshake.flush();
    } catch (Exception | LinkageError e) { // the transport's threads would keep a failed start alive
      System.err.println("fatal error: handler " + config.name + ": " + HandlerException.textOf(e));
      Runtime.getRuntime().halt(EX_SOFTWARE);
    }
  }

  /** Ends the process. The line begins as Go's last words do: kconsume shows it as the reason of the exit. */
  static void crash(Throwable e) {
    System.err.println("fatal error: " + e);
    Runtime.getRuntime().halt(EX_SOFTWARE);
  }

  private static void ignore(String signal) {
    try {
      sun.misc.Signal.handle(new sun.misc.Signal(signal), sun.misc.SignalHandler.SIG_IGN);
    } catch (IllegalArgumentException e) {
      // the JVM was told to leave signals alone (-Xrs)
    }
  }

  /** A server and its threads. */
  record Listening(Server server, NioEventLoopGroup accepting, NioEventLoopGroup serving) implements AutoCloseable {
    @Override
    public void close() {
      server.shutdownNow();
      accepting.shutdownGracefully(0, 1, TimeUnit.SECONDS);
      serving.shutdownGracefully(0, 1, TimeUnit.SECONDS);
    }
  }

  static Listening listen(Path socket, Service service) throws IOException {
    int n = socket.toString().getBytes(StandardCharsets.UTF_8).length;
    if (n > MAX_SOCKET_PATH) {
      throw new IOException("listen on " + socket + ": the path has " + n + " bytes, more than " + MAX_SOCKET_PATH + ": use a shorter runtime directory");
    }
    BOOTSTRAP.setLevel(Level.SEVERE);
    NioEventLoopGroup accepting = new NioEventLoopGroup(1);
    NioEventLoopGroup serving = new NioEventLoopGroup(1);
    NettyServerBuilder builder = NettyServerBuilder.forAddress(UnixDomainSocketAddress.of(socket))
        .channelType(NioServerDomainSocketChannel.class) // the JDK's own: no native library
        .bossEventLoopGroup(accepting)
        .workerEventLoopGroup(serving)
        .directExecutor() // nothing on the wire blocks
        .maxInboundMessageSize(MAX_FRAME)
        .flowControlWindow(WINDOW)
        .addService(service.definition());
    secure(builder);
    try {
      return new Listening(builder.build().start(), accepting, serving);
    } catch (IOException e) {
      throw new IOException("listen on " + socket + ": see whether the folder exists and may be written: " + e.getMessage(), e);
    }
  }

  /** The PEM blocks of a text: certificates and keys. */
  private static final Pattern PEM = Pattern.compile("-----BEGIN ([A-Z ]+)-----[^-]+-----END \\1-----\n");

  /**
   * Where kconsume wants TLS on the socket: the certificate and the key that it wrote to a pipe, and the
   * only certificate that is accepted from a client.
   */
  private static void secure(NettyServerBuilder builder) throws IOException {
    String fd = System.getenv(TLS_FD);
    if (fd == null) return;
    if (!fd.matches("[0-9]+") || !isPipe(Integer.parseInt(fd))) {
      throw new IOException("find the certificates for TLS: " + TLS_FD + "=\"" + fd + "\" names no pipe; start the handler with kconsume");
    }
    ByteArrayOutputStream text = new ByteArrayOutputStream();
    try (InputStream in = new FileInputStream(descriptor(Integer.parseInt(fd)).toFile())) {
      in.transferTo(text); // readAllBytes would ask a pipe for its length
    }
    List<String> blocks = PEM.matcher(text.toString(StandardCharsets.ISO_8859_1)).results().map(MatchResult::group).toList();
    if (blocks.size() < 3) {
      throw new IOException("read the certificates for TLS: not a certificate, a key and a certificate in PEM; start the handler with a matching kconsume");
    }
    builder.sslContext(GrpcSslContexts.forServer(stream(blocks.get(0)), stream(blocks.get(1)))
        .trustManager(stream(blocks.get(2))).clientAuth(ClientAuth.REQUIRE).build());
  }

  private static InputStream stream(String text) {
    return new ByteArrayInputStream(text.getBytes(StandardCharsets.ISO_8859_1));
  }

  private static Path descriptor(int fd) {
    Path linux = Path.of("/proc/self/fd/" + fd);
    return Files.exists(Path.of("/proc/self/fd")) ? linux : Path.of("/dev/fd/" + fd);
  }

  private static boolean isPipe(int fd) {
    try {
      return ((int) Files.getAttribute(descriptor(fd), "unix:mode") & S_IFMT) == S_IFIFO;
    } catch (IOException | UnsupportedOperationException e) {
      return false;
    }
  }

  /** Ends the process when kconsume closes its end of the pipe, or has ended, whatever the handler is doing. */
  private static void watchLifeline(Path socket) throws IOException {
    if (!isPipe(LIFELINE)) {
      throw new IOException("find the lifeline: descriptor " + LIFELINE + " is not a pipe; start the handler with kconsume");
    }
    InputStream lifeline = new FileInputStream(descriptor(LIFELINE).toFile());
    Thread t = new Thread(() -> {
      try {
        lifeline.transferTo(java.io.OutputStream.nullOutputStream());
        Files.deleteIfExists(socket);
      } catch (IOException e) {
        // however it ends, kconsume is gone
      }
      Runtime.getRuntime().halt(0);
    }, "kconsume-lifeline");
    t.setDaemon(true);
    t.start();
  }

  /** What a person reads who starts a handler by hand. */
  private static String usage(Config c) {
    String about = c.topics.isEmpty() ? "" : " for " + String.join(", ", c.topics);
    String topic = c.topics.isEmpty() ? "TOPIC" : c.topics.get(0);
    String launcher = "/usr/local/libexec/kconsume/handlers/kconsume-handler-" + c.name;
    String jar = System.getProperty("java.class.path", "handler.jar");
    return """
        %1$s is a kconsume handler%2$s. It does nothing by itself: kconsume starts it.

        Install it:   write the two lines that follow to %3$s, and chmod 0755 it

          #!/bin/sh
          exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -jar %4$s "$@"

        Run it:       kconsume run --brokers HOST:9092 --group GROUP --topic %5$s --handler %6$s
        Try it out:   kconsume dev --handler %3$s
        Inspect it:   kconsume plugin inspect %3$s
        Debug it:     kconsume dev --handler %3$s --handler-env KCONSUME_HANDLER_DEBUG=1 \\
                        --handler-env JAVA_TOOL_OPTIONS=-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=127.0.0.1:5005
        """.formatted((c.name + " " + c.version).trim(), about, launcher, Path.of(jar.split(":")[0]).toAbsolutePath(), topic, c.name);
  }
}
