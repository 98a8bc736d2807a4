'use strict';

// The handler of test/conformance, whose README.md says what each command does.
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const { setTimeout: sleep } = require('node:timers/promises');
const { Drop, Permanent, Transient, serve, serveBatch } = require('@kconsume/handler');

const config = { name: 'conformance', version: '1.2.3', topics: ['conformance.a', 'conformance.b'] };
const NEVER = 2 ** 31 - 1;

class Odd extends Error {}

/** Splits off n words; the rest may hold spaces. */
function words(text, n) {
  const list = [];
  for (let i = 0; i < n; i++) {
    const at = text.indexOf(' ');
    list.push(at < 0 ? text : text.slice(0, at));
    text = at < 0 ? '' : text.slice(at + 1);
  }
  return [...list, text];
}

const wish = ms => (Number(ms) > 0 ? { retryAfter: Number(ms) / 1000 } : {});
const touch = file => fs.closeSync(fs.openSync(file, 'a'));

async function appears(file) {
  while (!fs.existsSync(file)) await sleep(2);
}

const plain = {
  ack() {},
  transient(m, rest) {
    const [ms, text] = words(rest, 1);
    throw new Transient(text, wish(ms));
  },
  permanent(m, rest) {
    const [code, text] = words(rest, 1);
    throw new Permanent(text, { code });
  },
  drop(m, text) {
    throw new Drop(text);
  },
  echo(m) {
    m.emit({ topic: 'echo', key: m.key, value: m.value, headers: m.headers });
  },
  emit(m, n) {
    for (let i = 0; i < Number(n); i++) m.emit({ topic: 'out', value: String(i) });
  },
};

const commands = {
  ...plain,
  causes(m, rest) {
    const [a, b, c] = words(rest, 2);
    throw new Permanent(a, { cause: new Error(b, { cause: new Error(c) }) });
  },
  wrapped(m, rest) {
    const [ms, text] = words(rest, 1);
    throw new Odd('own words', { cause: new Transient(text, wish(ms)) });
  },
  json(m) {
    m.json();
  },
  badtext() {
    throw new Permanent('bad \ud83d text');
  },
  longtext(m, n) {
    throw new Permanent('x'.repeat(Number(n)));
  },
  panic(m, text) {
    throw new TypeError(text);
  },
  unknown(m, text) {
    throw new Odd(text);
  },
  typed: (m, kind) => typed[kind](),
  tell(m) {
    const left = m.timeLeft === Infinity ? 0 : Math.ceil(m.timeLeft);
    const told = {
      id: m.id, topic: m.topic, partition: m.partition, offset: m.offset, time: m.time === null ? -1 : m.time.getTime(),
      attempt: m.attempt, max_attempts: m.maxAttempts, stage: m.stage, deadline: left,
    };
    m.emit({ topic: 'told', headers: Object.entries(told).map(([key, value]) => ({ key, value: String(value) })) });
  },
  'emit-bytes'(m, n) {
    m.emit({ topic: 'out', value: Buffer.alloc(Number(n)) });
  },
  'emit-then-fail'(m, text) {
    m.emit({ topic: 'out', value: 'lost' });
    throw new Permanent(text);
  },
  async gate(m, rest) {
    const [begun, go] = words(rest, 1);
    touch(begun);
    await appears(go);
  },
  async 'gate-then-fail'(m, rest) {
    const [begun, go, text] = words(rest, 2);
    touch(begun);
    await appears(go);
    throw new Transient(text);
  },
  async wait(m, begun) {
    touch(begun);
    await sleep(NEVER, undefined, { signal: m.signal });
  },
  async leave(m, begun) {
    touch(begun);
    await sleep(NEVER, undefined, { signal: m.draining });
  },
  async block(m, begun) {
    touch(begun);
    await sleep(NEVER);
  },
  spin(m, begun) {
    touch(begun);
    for (;;);
  },
  exit(m, status) {
    process.exit(Number(status));
  },
  'exit-once'(m, file) {
    if (fs.existsSync(file)) return;
    touch(file);
    process.exit(3);
  },
  kill() {
    process.kill(process.pid, 'SIGKILL');
    for (;;);
  },
  say(m, text) {
    console.log(`out ${text}`);
    console.error(`err ${text}`);
  },
};

const typed = {
  async timeout() {
    await sleep(NEVER, undefined, { signal: AbortSignal.timeout(1) }).catch(err => {
      throw err.cause; // timers reject with an AbortError that the timeout caused
    });
  },
  refused,
  json: () => JSON.parse('{"a":'),
  'status-503': () => status(503),
  'status-429': () => status(429),
  'status-404': () => status(404),
  'sqlstate-40001': () => database('40001'),
  'sqlstate-23505': () => database('23505'),
  'grpc-14': () => rpc(14),
  'grpc-3': () => rpc(3),
};

async function refused() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await once(server.close(), 'close');
  await fetch(`http://127.0.0.1:${port}`);
}

/** As axios has it. */
function status(n) {
  throw Object.assign(new Error(`Request failed with status code ${n}`), { name: 'AxiosError', code: 'ERR_BAD_RESPONSE', response: { status: n } });
}

/** As pg has it. */
function database(code) {
  throw Object.assign(new Error('refused by the database'), { severity: 'ERROR', code });
}

/** As a client of grpc-js has it. */
function rpc(code) {
  throw Object.assign(new Error(`${code}: no`), { code, details: 'no' });
}

function command(m) {
  const text = m.headers.find(h => h.key === 'do')?.value?.toString() ?? 'ack';
  return words(text, 1);
}

function handle(m) {
  const [name, rest] = command(m);
  if (!Object.hasOwn(commands, name)) throw new Permanent('no such command');
  return commands[name](m, rest);
}

async function handleBatch(batch) {
  let whole;
  for (const [i, m] of batch.messages.entries()) {
    const [name, rest] = command(m);
    switch (name) {
      case 'batch-error':
        whole = new Transient(rest);
        break;
      case 'batch-size':
        m.emit({ topic: 'size', value: String(batch.length) });
        break;
      case 'gate': case 'exit': case 'panic':
        await commands[name](m, rest);
        break;
      default:
        try {
          plain[name]?.(m, rest);
        } catch (err) {
          batch.fail(i, err);
        }
    }
  }
  if (whole) throw whole;
}

async function main() {
  const args = process.argv.slice(2);
  console.log('before serve');
  if (args.includes('slow')) await sleep(200);
  if (args.includes('batch')) serveBatch({ ...config, max: 100 }, handleBatch);
  else serve(config, handle);
}

main();
