package orders;

import io.github.kconsume.handler.Config;
import io.github.kconsume.handler.Kconsume;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

/** Handler of confirmed orders. */
public final class Main {
  private Main() {}

  public static void main(String[] args) {
    URI charges = URI.create(System.getenv().getOrDefault("PAYMENTS_URL", "http://127.0.0.1:8080") + "/charges");
    HttpClient http = HttpClient.newHttpClient();
    Gateway gateway = (order, key) -> {
      String body = "{\"order_id\":\"%s\",\"amount_cents\":%d}".formatted(order.order_id(), order.total_cents());
      HttpRequest request = HttpRequest.newBuilder(charges).header("Content-Type", "application/json").header("Idempotency-Key", key)
          .POST(BodyPublishers.ofString(body)).build();
      return http.send(request, BodyHandlers.discarding()).statusCode(); // ends when the thread is interrupted
    };
    Kconsume.serve(Config.of("orders").version("1.0.0").topics("orders.confirmed"), new OrderHandler(gateway));
  }
}
