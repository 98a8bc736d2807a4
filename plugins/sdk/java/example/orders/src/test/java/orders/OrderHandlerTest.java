package orders;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.kconsume.handler.Config;
import io.github.kconsume.handler.Testing;
import io.github.kconsume.handler.TestRecord;
import io.github.kconsume.handler.Verdict;
import io.github.kconsume.handler.Verdict.Kind;
import java.net.ConnectException;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class OrderHandlerTest {
  private static final String ORDER = "{\"order_id\":\"o-1\",\"total_cents\":4200}";

  private static Verdict handled(Gateway gateway, String value) {
    return Testing.of(Config.of("orders"), new OrderHandler(gateway)).run(TestRecord.of(value).key("k")).get(0);
  }

  @Test
  void whatTheGatewayAnswersDecides() {
    assertEquals(Kind.ACK, handled((order, key) -> 200, ORDER).kind());
    assertEquals(Duration.ofMillis(1500), handled((order, key) -> 429, ORDER).retryAfter());
    assertEquals(Kind.TRANSIENT, handled((order, key) -> 503, ORDER).kind());
    assertEquals("402", handled((order, key) -> 402, ORDER).code());
  }

  @Test
  void aChargedOrderIsAnnounced() {
    Verdict v = handled((order, key) -> 200, ORDER);
    assertEquals("orders.charged", v.emitted().get(0).topic());
    assertEquals(ORDER, new String(v.emitted().get(0).value()));
  }

  @Test
  void aGatewayThatIsAwayIsTriedAgainWhatIsNoJsonIsNot() {
    Gateway away = (order, key) -> {
      throw new ConnectException("refused");
    };
    assertEquals("network", handled(away, ORDER).rule());
    assertEquals("poison", handled(away, "{").reason());
  }
}
