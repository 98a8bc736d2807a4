// An author's program, for the compiler only.
import { Drop, HttpError, Permanent, Transient, serve, serveBatch, type Message } from '@kconsume/handler';
import { run } from '@kconsume/handler/testing';

class Declined extends Error {}

async function handle(m: Message) {
  const order = m.json<{ total: number }>();
  if (m.key === null) throw new Drop('no key');
  if (order.total < 0) throw new Permanent('negative', { code: 'validation', cause: new Error('x') });
  if (m.header('x')?.toString() === 'busy' || m.timeLeft < 5) throw new Transient(new Error('busy'), { retryAfter: 1.5 });
  const response = await fetch('http://127.0.0.1', { signal: m.signal });
  if (!response.ok) throw new HttpError(response);
  m.draining.throwIfAborted();
  m.emit({ topic: 'out', key: m.key, value: 'text', headers: m.headers });
  // @ts-expect-error a handler must not change its message
  m.value = null;
  // @ts-expect-error retryAfter is in seconds, as a number
  throw new Transient('x', { retryAfter: '1.5' });
}

serve({ name: 'orders', version: '1', topics: ['t'], classifiers: [e => e instanceof Declined && { class: 'permanent', code: 'declined' }, () => 'transient'], close: async () => {} }, handle);
serveBatch({ name: 'orders', max: 10, concurrency: 1 }, async batch => {
  for (const [i, m] of batch.messages.entries()) if (m.offset < batch.length) batch.fail(i, new Error('x'));
});

const [answer] = await run(handle, [{ value: '{}', headers: [{ key: Buffer.from([0xff]) }] }], { timeout: 1 });
if (answer.class === 'transient') console.log(answer.retryAfter, answer.emitted[0].key);
await run(batch => { batch.fail(0, new Error('x')); }, [{}], { batch: 5 });
