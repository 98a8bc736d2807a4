package io.github.kconsume.handler;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.nio.NioEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioDomainSocketChannel;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Runs a handler on records in a test, over a real connection.
 *
 * <pre>{@code Verdict v = Testing.of(config, handler).run(TestRecord.of("{}")).get(0);}</pre>
 */
public final class Testing {
  private final Config config;
  private final Runner runner;
  private int concurrency;

  private Testing(Config config, Runner runner) {
    this.config = config;
    this.runner = runner;
  }

  public static Testing of(Config config, Handler handler) {
    return new Testing(config, Runner.of(handler, config));
  }

  public static Testing ofBatches(Config config, BatchHandler handler) {
    return new Testing(config, Runner.of(handler, config));
  }

  /** Calls that may run at once; 64 where nothing is said. */
  public Testing concurrency(int calls) {
    concurrency = calls;
    return this;
  }

  /** The answers to the records, in their order. */
  public List<Verdict> run(TestRecord... records) {
    try (Connection c = new Connection(config, runner)) {
      ProtoWriter frame = new ProtoWriter().message(3, new ProtoWriter().number(1, concurrency));
      for (int i = 0; i < records.length; i++) frame.message(1, records[i].write(i));
      Verdict[] answers = new Verdict[records.length];
      CompletableFuture<Void> over = new CompletableFuture<>();
      StreamObserver<byte[]> out = c.deliver(bytes -> read(bytes, answers), over);
      out.onNext(frame.toByteArray());
      out.onNext(new ProtoWriter().flag(2, true).toByteArray());
      out.onCompleted();
      over.join();
      return Arrays.asList(answers);
    } catch (IOException e) {
      throw new IllegalStateException("run the handler in memory: " + e.getMessage(), e);
    }
  }

  private static void read(byte[] bytes, Verdict[] answers) throws WireException {
    for (ProtoReader r = new ProtoReader(bytes); r.next(); ) {
      if (r.field() == 2) r.numbers(handle -> answers[(int) handle] = Verdict.acknowledged(List.of()));
      if (r.field() == 3) readVerdict(r.message(), answers);
    }
  }

  private static void readVerdict(ProtoReader r, Verdict[] answers) throws WireException {
    long handle = 0;
    Verdict.Kind kind = Verdict.Kind.NONE;
    String[] texts = {"", "", "", "", "", "", "", "", "", ""}; // by field
    Duration retryAfter = Duration.ZERO;
    List<String> causes = new ArrayList<>();
    List<OutputRecord> emitted = new ArrayList<>();
    while (r.next()) {
      switch (r.field()) {
        case 1 -> handle = r.number();
        case 2 -> kind = Verdict.Kind.values()[(int) r.number()];
        case 3, 4, 5, 8, 9 -> texts[r.field()] = r.text();
        case 6 -> retryAfter = Duration.ofMillis(r.number());
        case 7 -> causes.add(r.text());
        case 10 -> emitted.add(readEmitted(r.message()));
        default -> { }
      }
    }
    answers[(int) handle] = new Verdict(kind, texts[3], texts[4], texts[5], retryAfter, causes, texts[8], texts[9], emitted);
  }

  private static OutputRecord readEmitted(ProtoReader r) throws WireException {
    String topic = "";
    byte[] key = null;
    byte[] value = null;
    List<Header> headers = new ArrayList<>();
    while (r.next()) {
      switch (r.field()) {
        case 1 -> topic = r.text();
        case 2 -> key = r.bytes();
        case 3 -> value = r.bytes();
        case 4 -> headers.add(Frames.readHeader(r.message()));
        default -> { }
      }
    }
    return new OutputRecord(topic, key, value, headers);
  }

  /** The host's side of the wire, to a handler in this process. */
  static final class Connection implements AutoCloseable {
    private final Path dir = Files.createTempDirectory("kc");
    private final Path socket = dir.resolve("s");
    private final Main.Listening server;
    private final NioEventLoopGroup threads = new NioEventLoopGroup(1);
    private final ManagedChannel channel;

    Connection(Config config, Runner runner) throws IOException {
      server = Main.listen(socket, new Service(config, runner));
      channel = NettyChannelBuilder.forAddress(UnixDomainSocketAddress.of(socket))
          .channelType(NioDomainSocketChannel.class, UnixDomainSocketAddress.class).eventLoopGroup(threads).usePlaintext()
          .maxInboundMessageSize(Main.MAX_FRAME).build();
    }

    interface Frame {
      void take(byte[] bytes) throws WireException;
    }

    /** Opens a stream of records; over completes when the handler has ended it. */
    StreamObserver<byte[]> deliver(Frame each, CompletableFuture<Void> over) {
      return ClientCalls.asyncBidiStreamingCall(channel.newCall(Service.DELIVER, CallOptions.DEFAULT), observer(each, over));
    }

    StreamObserver<byte[]> control(Frame each) {
      return ClientCalls.asyncBidiStreamingCall(channel.newCall(Service.CONTROL, CallOptions.DEFAULT), observer(each, new CompletableFuture<>()));
    }

    private static StreamObserver<byte[]> observer(Frame each, CompletableFuture<Void> over) {
      return new StreamObserver<>() {
        @Override
        public void onNext(byte[] bytes) {
          try {
            each.take(bytes);
          } catch (WireException e) {
            over.completeExceptionally(e);
          }
        }

        @Override
        public void onError(Throwable t) {
          over.completeExceptionally(t);
        }

        @Override
        public void onCompleted() {
          over.complete(null);
        }
      };
    }

    @Override
    public void close() throws IOException {
      channel.shutdownNow();
      server.close();
      threads.shutdownGracefully(0, 1, TimeUnit.SECONDS);
      Files.deleteIfExists(socket);
      Files.deleteIfExists(dir);
    }
  }
}
