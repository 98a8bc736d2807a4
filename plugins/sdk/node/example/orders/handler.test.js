'use strict';

const assert = require('node:assert/strict');
const { once } = require('node:events');
const net = require('node:net');
const { test } = require('node:test');
const { run } = require('@kconsume/handler/testing');
const { newHandler } = require('./handler');

const order = { value: JSON.stringify({ order_id: 'o-1', total_cents: 4200 }) };

test('what the gateway answers decides', async () => {
  for (const [status, expected] of [
    [200, { class: 'ack' }],
    [429, { class: 'transient', retryAfter: 1.5 }],
    [503, { class: 'transient', retryAfter: 0 }],
    [402, { class: 'permanent', code: '402' }],
  ]) {
    const [answer] = await run(newHandler(() => status), [order]);
    for (const name of Object.keys(expected)) assert.equal(answer[name], expected[name], `${status}: ${name}`);
  }
});

test('a charged order is announced', async () => {
  const [answer] = await run(newHandler(() => 200), [{ ...order, key: 'k' }]);
  assert.deepEqual(answer.emitted, [
    { topic: 'orders.charged', key: Buffer.from('k'), value: Buffer.from('{"order_id":"o-1"}'), headers: [] },
  ]);
});

test('a gateway that is away is tried again, what is no JSON is not', async () => {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await once(server.close(), 'close');
  const away = () => fetch(`http://127.0.0.1:${port}/`);
  const [later, poison] = await run(newHandler(away), [order, { value: '{' }]);
  assert.equal(later.class, 'transient');
  assert.deepEqual([poison.class, poison.reason], ['permanent', 'poison']);
});
