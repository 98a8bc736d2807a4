package io.github.kconsume.handler;

import io.grpc.KnownLength;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;

/** The handler's end of the wire. Each Deliver stream has a pool of its own. */
final class Service {
  private static final String SDK = "java/1";
  private static final String NAME = "kconsume.handler.v1.Handler";
  private static final int DEFAULT_CONCURRENCY = 64;
  /** About the most that goes into one frame of verdicts; a larger one goes alone. */
  private static final int FRAME_BYTES = 1 << 20;
  private static final long CLOSE_BOUND_MS = 3000;

  static final MethodDescriptor<byte[], byte[]> DELIVER = method("Deliver");
  static final MethodDescriptor<byte[], byte[]> CONTROL = method("Control");

  private final Config config;
  private final Runner runner;
  private final AtomicBoolean closing = new AtomicBoolean();

  Service(Config config, Runner runner) {
    this.config = config;
    this.runner = runner;
  }

  ServerServiceDefinition definition() {
    return ServerServiceDefinition.builder(NAME)
        .addMethod(DELIVER, ServerCalls.asyncBidiStreamingCall(this::deliver))
        .addMethod(CONTROL, ServerCalls.asyncBidiStreamingCall(Service::echo))
        .build();
  }

  private static StreamObserver<byte[]> echo(StreamObserver<byte[]> out) {
    return new StreamObserver<>() {
      @Override
      public void onNext(byte[] beat) {
        out.onNext(beat);
      }

      @Override
      public void onError(Throwable t) {}

      @Override
      public void onCompleted() {
        out.onCompleted();
      }
    };
  }

  /** Answers what the host sends, until the host asks for a drain, ends its side, or is gone. */
  private StreamObserver<byte[]> deliver(StreamObserver<byte[]> out) {
    Stream stream = new Stream((ServerCallStreamObserver<byte[]>) out);
    List<String> capabilities = new ArrayList<>();
    if (runner.batches()) capabilities.add("batch");
    if (config.debug) capabilities.add("debug");
    out.onNext(Frames.hello(config, SDK, capabilities));
    return stream;
  }

  /** One stream. The transport's thread receives, one of its own sends. */
  private final class Stream implements StreamObserver<byte[]> {
    private final ServerCallStreamObserver<byte[]> out;
    private final Semaphore ready = new Semaphore(0); // a permit: the transport may take more
    private volatile boolean closed; // nobody wants answers any more
    private Pool pool; // from the first frame on; used by the transport's thread

    Stream(ServerCallStreamObserver<byte[]> out) {
      this.out = out;
      out.setOnReadyHandler(ready::release);
      out.setOnCancelHandler(this::close);
    }

    @Override
    public void onNext(byte[] bytes) {
      Frames.HostFrame f;
      try {
        f = Frames.readHostFrame(bytes);
      } catch (WireException e) {
        close();
        synchronized (out) {
          out.onError(Status.INTERNAL.withDescription(e.getMessage()).asRuntimeException());
        }
        return;
      }
      if (pool == null) begin(f.concurrency);
      if (config.debug) f.records.forEach(d -> d.deadlineMs = 0);
      if (!f.records.isEmpty()) pool.deliver(f.records);
      if (!f.cancel.isEmpty()) pool.cancel(f.cancel);
      if (f.drain) pool.drain();
    }

    @Override
    public void onError(Throwable t) {
      close();
    }

    @Override
    public void onCompleted() {
      if (pool == null) begin(0);
      pool.drain();
    }

    private void begin(int wanted) {
      int concurrency = wanted == 0 ? DEFAULT_CONCURRENCY : wanted;
      if (config.concurrency > 0) concurrency = Math.min(concurrency, config.concurrency);
      pool = new Pool(runner, concurrency, runner.batches() ? config.max : 1);
      Thread sender = new Thread(this::send, "kconsume-answers");
      sender.setDaemon(true);
      sender.start();
    }

    private void close() {
      closed = true;
      if (pool != null) pool.close();
      ready.release();
    }

    private void send() {
      for (Answers a = pool.next(); a != null; a = pool.next()) {
        while (!out.isReady() && !closed) ready.acquireUninterruptibly();
        synchronized (out) {
          if (closed) return;
          send(a);
        }
      }
      if (!closed) goodbye();
      synchronized (out) {
        if (!closed) out.onCompleted();
      }
    }

    /** Verdicts go before ended: a handle is never in ended before its answer. */
    private void send(Answers a) {
      List<Long> acked = a.acked;
      List<byte[]> verdicts = new ArrayList<>();
      int size = 0;
      for (Answers.Answer answer : a.verdicts) {
        byte[] v = Frames.verdict(answer);
        if (size + v.length > FRAME_BYTES && !verdicts.isEmpty()) {
          out.onNext(Frames.answers(acked, verdicts, List.of()));
          acked = List.of();
          verdicts.clear();
          size = 0;
        }
        verdicts.add(v);
        size += v.length;
      }
      out.onNext(Frames.answers(acked, verdicts, a.ended));
    }
  }

  /** Lets the handler flush and close what it has, not longer than a while: the host waits, too. */
  private void goodbye() {
    if (config.close == null || !closing.compareAndSet(false, true)) return;
    Thread t = new Thread(config.close, "kconsume-close");
    t.setDaemon(true);
    t.start();
    try {
      t.join(CLOSE_BOUND_MS);
    } catch (InterruptedException e) {
      throw new IllegalStateException("nobody interrupts this thread", e);
    }
    if (t.isAlive()) System.err.println("close handler " + config.name + ": not back after " + CLOSE_BOUND_MS + " ms: left behind");
  }

  private static MethodDescriptor<byte[], byte[]> method(String name) {
    return MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(MethodType.BIDI_STREAMING)
        .setFullMethodName(NAME + "/" + name)
        .setRequestMarshaller(new Bytes())
        .setResponseMarshaller(new Bytes())
        .build();
  }

  /** Frames are read and written elsewhere: an error in one is to end its stream in our words. */
  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    private static final class Known extends ByteArrayInputStream implements KnownLength {
      Known(byte[] b) {
        super(b);
      }
    }

    @Override
    public InputStream stream(byte[] b) {
      return new Known(b);
    }

    @Override
    public byte[] parse(InputStream in) {
      try {
        return in.readAllBytes();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
