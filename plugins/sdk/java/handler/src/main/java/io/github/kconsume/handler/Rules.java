package io.github.kconsume.handler;

import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.lang.reflect.Method;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.channels.ClosedChannelException;
import java.sql.SQLException;
import java.sql.SQLRecoverableException;
import java.sql.SQLTransientException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.Stream;

/** The built-in rules. */
final class Rules {
  private static final int MAX_TREE = 256;

  private Rules() {}

  /** The first result that is not null, over e and all that caused it, outermost first. */
  static <T> T find(Throwable e, Function<Throwable, T> look) {
    Set<Throwable> seen = Collections.newSetFromMap(new IdentityHashMap<>());
    ArrayDeque<Throwable> left = new ArrayDeque<>(List.of(e));
    while (!left.isEmpty() && seen.size() < MAX_TREE) {
      Throwable at = left.pop();
      if (!seen.add(at)) continue;
      T found = look.apply(at);
      if (found != null) return found;
      if (at instanceof SQLException s && s.getNextException() != null) left.push(s.getNextException());
      if (at.getCause() != null) left.push(at.getCause());
    }
    return null;
  }

  static <T extends Throwable> T find(Throwable e, Class<T> type) {
    return find(e, x -> type.isInstance(x) ? type.cast(x) : null);
  }

  private static boolean any(Throwable e, Class<?>... types) {
    return find(e, x -> Stream.of(types).anyMatch(t -> t.isInstance(x)) ? x : null) != null;
  }

  /** The verdict of the first rule that knows e; null = none does. */
  static Verdict builtin(Throwable e) {
    if (any(e, SQLTransientException.class, SQLRecoverableException.class)) return later("temporary");
    if (any(e, TimeoutException.class)) return later("deadline");
    if (find(e, Rules::isCancellation) != null) return later("canceled");
    Verdict v = sqlState(e);
    if (v == null) v = httpStatus(e);
    if (v == null) v = rpcStatus(e);
    if (v != null) return v;
    if (any(e, SocketException.class, SocketTimeoutException.class, UnknownHostException.class, ClosedChannelException.class)) return later("network");
    if (find(e, Rules::isTransport) != null) return later("network");
    String decoder = find(e, Rules::decoderOf); // before eof: it is how Gson says that a text ends early
    if (decoder != null) return Verdict.plain(Verdict.Kind.PERMANENT, "poison", "", decoder);
    return any(e, EOFException.class) ? later("eof") : null;
  }

  private static Verdict later(String rule) {
    return Verdict.plain(Verdict.Kind.TRANSIENT, "transient", "", rule);
  }

  private static Verdict never(String rule) {
    return Verdict.plain(Verdict.Kind.PERMANENT, "permanent", "", rule);
  }

  static Throwable isCancellation(Throwable e) {
    boolean interrupted = e instanceof InterruptedIOException && !(e instanceof SocketTimeoutException);
    return e instanceof InterruptedException || e instanceof CancellationException || interrupted
        || e instanceof java.nio.channels.ClosedByInterruptException ? e : null;
  }

  /**
   * A connection that broke, as java.nio and java.net.http report it: an IOException of no special type,
   * or HttpTimeoutException and its kin. Special types tell of other things, such as a file that is missing.
   */
  private static Throwable isTransport(Throwable e) {
    if (!(e instanceof IOException)) return null;
    String name = e.getClass().getName();
    return e.getClass() == IOException.class || name.startsWith("java.net.http.") ? e : null;
  }

  private static String sqlStateOf(Throwable e) {
    String state = e instanceof SQLException s ? s.getSQLState() : null;
    return state != null && state.length() == 5 ? state : null;
  }

  private static Verdict sqlState(Throwable e) {
    String state = find(e, Rules::sqlStateOf);
    if (state == null) return null;
    return switch (state.substring(0, 2)) {
      case "08", "40", "53" -> later("sqlstate"); // connection, serialization and deadlock, resources
      case "22", "23", "42" -> never("sqlstate"); // data, constraint, syntax and access
      default -> state.startsWith("57P") ? later("sqlstate") : null; // the server is stopped or starting
    };
  }

  /** The method of an exception's class that tells an HTTP status, where it has one. */
  private static final ClassValue<Method[]> STATUS = new ClassValue<>() {
    @Override
    protected Method[] computeValue(Class<?> type) {
      Set<String> names = Set.of("statusCode", "getStatusCode", "getRawStatusCode", "status", "getStatus");
      return Stream.of(type.getMethods())
          .filter(m -> names.contains(m.getName()) && m.getParameterCount() == 0 && m.getReturnType() == int.class && m.trySetAccessible())
          .toArray(Method[]::new);
    }
  };

  private static Integer statusOf(Throwable e) {
    for (Method m : STATUS.get(e.getClass())) {
      try {
        int n = (int) m.invoke(e);
        if (n == 0 || n >= 100 && n <= 599) return n;
      } catch (ReflectiveOperationException silent) {
        // then it does not tell
      }
    }
    return null;
  }

  private static Verdict httpStatus(Throwable e) {
    Integer n = find(e, Rules::statusOf);
    if (n == null) return null;
    if (n == 0 || n == 408 || n == 425 || n == 429 || n >= 500) return later("status");
    return n >= 400 ? never("status") : null;
  }

  private static Status grpcOf(Throwable e) {
    if (e instanceof StatusRuntimeException r) return r.getStatus();
    return e instanceof StatusException s ? s.getStatus() : null;
  }

  private static final Metadata.Key<byte[]> DETAILS = Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private static Verdict rpcStatus(Throwable e) {
    Status status = find(e, Rules::grpcOf);
    if (status == null) return null;
    Duration wish = retryInfo(find(e, Rules::trailersOf));
    if (wish != null) return new Verdict(Verdict.Kind.TRANSIENT, "transient", "", "", wish, List.of(), "", "grpc", List.of());
    return switch (status.getCode()) {
      case CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE -> later("grpc");
      case OK, UNKNOWN -> null; // tell nothing
      default -> never("grpc");
    };
  }

  private static Metadata trailersOf(Throwable e) {
    if (e instanceof StatusRuntimeException r) return r.getTrailers();
    return e instanceof StatusException s ? s.getTrailers() : null;
  }

  /** The delay of a google.rpc.RetryInfo among the details of a google.rpc.Status; null = there is none. */
  private static Duration retryInfo(Metadata trailers) {
    byte[] bytes = trailers == null ? null : trailers.get(DETAILS);
    if (bytes == null) return null;
    try {
      for (ProtoReader status = new ProtoReader(bytes); status.next(); ) {
        Duration wish = status.field() == 3 ? retryInfo(status.message()) : null;
        if (wish != null) return wish;
      }
    } catch (WireException e) {
      // not what it should be: then it says nothing
    }
    return null;
  }

  private static Duration retryInfo(ProtoReader any) throws WireException {
    String type = "";
    Duration wish = Duration.ZERO;
    while (any.next()) {
      if (any.field() == 1) type = any.text();
      if (any.field() != 2) continue;
      for (ProtoReader info = any.message(); info.next(); ) {
        if (info.field() != 1) continue;
        for (ProtoReader delay = info.message(); delay.next(); ) {
          if (delay.field() == 1) wish = wish.plusSeconds(delay.number());
          if (delay.field() == 2) wish = wish.plusNanos(delay.number());
        }
      }
    }
    return type.equals("type.googleapis.com/google.rpc.RetryInfo") ? wish : null;
  }

  /** What libraries throw that decode JSON or protobuf; the SDK needs none of them. */
  private static String decoderOf(Throwable e) {
    for (Class<?> c = e.getClass(); c != null; c = c.getSuperclass()) {
      switch (c.getName()) {
        case "com.fasterxml.jackson.core.JacksonException", "com.fasterxml.jackson.core.JsonProcessingException",
            "tools.jackson.core.JacksonException", "com.google.gson.JsonSyntaxException", "com.google.gson.stream.MalformedJsonException",
            "jakarta.json.JsonException", "org.json.JSONException" -> {
          return "json";
        }
        case "com.google.protobuf.InvalidProtocolBufferException" -> {
          return "protobuf";
        }
        default -> { }
      }
    }
    return null;
  }

  /** The rule for what a parser threw. */
  static String decoder(Throwable e) {
    String known = find(e, Rules::decoderOf);
    return known == null ? "decode" : known;
  }

  /** The machine-readable word that e has, whatever rule fires; empty = none. */
  static String code(Throwable e) {
    String state = find(e, Rules::sqlStateOf);
    if (state != null) return state;
    Integer status = find(e, Rules::statusOf);
    if (status != null) return status.toString();
    Status rpc = find(e, Rules::grpcOf);
    if (rpc == null) return "";
    StringBuilder name = new StringBuilder(); // as in other languages: InvalidArgument
    if (rpc.getCode() == Status.Code.OK) return "OK";
    if (rpc.getCode() == Status.Code.CANCELLED) return "Canceled";
    for (String word : rpc.getCode().name().split("_")) name.append(word.charAt(0)).append(word.substring(1).toLowerCase(java.util.Locale.ROOT));
    return name.toString();
  }
}
