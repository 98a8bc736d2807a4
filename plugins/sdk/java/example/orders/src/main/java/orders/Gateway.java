package orders;

import java.io.IOException;

/** Takes money. */
interface Gateway {
  /** The HTTP status of the answer. A key that was charged before is not charged again. */
  int charge(OrderHandler.Order order, String idempotencyKey) throws IOException, InterruptedException;
}
