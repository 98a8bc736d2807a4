package orders;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.github.kconsume.handler.Handler;
import io.github.kconsume.handler.Message;
import io.github.kconsume.handler.OutputRecord;
import io.github.kconsume.handler.Permanent;
import io.github.kconsume.handler.Transient;
import java.time.Duration;

/** Charges confirmed orders. */
record OrderHandler(Gateway gateway) implements Handler {
  private static final ObjectMapper JSON = new ObjectMapper().disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);

  record Order(String order_id, long total_cents) {}

  @Override
  public void handle(Message m) throws Exception {
    Order order = m.valueAs(bytes -> JSON.readValue(bytes, Order.class)); // no JSON: a dead letter
    if (order.total_cents() <= 0) throw new Permanent("order without a total").code("validation");
    int status = gateway.charge(order, m.id());
    if (status == 429) throw new Transient("gateway is busy").retryAfter(Duration.ofMillis(1500));
    if (status >= 500) throw new Transient("gateway answers " + status);
    if (status >= 400) throw new Permanent("charge refused with " + status).code(Integer.toString(status));
    m.emit(new OutputRecord("orders.charged", m.key(), JSON.writeValueAsBytes(order)));
  }
}
