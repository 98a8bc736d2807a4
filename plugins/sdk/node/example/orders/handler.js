'use strict';

const { Permanent, Transient } = require('@kconsume/handler');

/** Makes the handler of confirmed orders; charge takes an order and an idempotency key, and resolves to an HTTP status. */
exports.newHandler = charge => async m => {
  const order = m.json(); // no JSON: a dead letter
  if (!(order.total_cents > 0)) throw new Permanent('order without a total', { code: 'validation' });
  const status = await charge(order, m.id, m.signal);
  if (status === 429) throw new Transient('gateway is busy', { retryAfter: 1.5 });
  if (status >= 500) throw new Transient(`gateway answers ${status}`);
  if (status >= 400) throw new Permanent(`charge refused with ${status}`, { code: String(status) });
  m.emit({ topic: 'orders.charged', key: m.key, value: JSON.stringify({ order_id: order.order_id }) });
};
