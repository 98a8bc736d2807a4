'use strict';

// Every rule with the real error of a real library.
const assert = require('node:assert/strict');
const dns = require('node:dns/promises');
const { once } = require('node:events');
const http = require('node:http');
const net = require('node:net');
const { test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const axios = require('axios');
const pg = require('pg');
const { classify } = require('../lib/classify');
const { definition } = require('../lib/service');
const { Drop, HttpError, Permanent, Transient } = require('..');

const thrown = async f => {
  try {
    await f();
  } catch (err) {
    return err;
  }
  return assert.fail('nothing was thrown');
};

const expect = (err, wanted, options) => {
  const v = classify(err, options);
  for (const name of Object.keys(wanted)) assert.deepEqual(v[name], wanted[name], `${name} of ${JSON.stringify(v)}`);
};

async function closedPort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await once(server.close(), 'close');
  return port;
}

/** Runs f with the address of a server of connections. */
async function serving(server, f) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    return await f(`127.0.0.1:${server.address().port}`, server.address().port);
  } finally {
    server.close();
    server.closeAllConnections?.();
  }
}

test('explicit errors, however deep they are', () => {
  const cause = new Error('connection lost');
  expect(new Transient('later', { retryAfter: 1.5, cause }), { class: 'transient', reason: 'transient', retryAfter: 1.5, rule: 'explicit', causes: ['connection lost'] });
  expect(new Permanent(cause), { class: 'permanent', message: 'connection lost', causes: [], rule: 'explicit' });
  expect(new Permanent('no', { code: 'E42' }), { class: 'permanent', code: 'E42', reason: 'permanent' });
  expect(new Drop('a test order'), { class: 'drop', reason: '', message: 'a test order' });
  expect(new Error('own words', { cause: new Error('x', { cause: new Transient('busy', { retryAfter: 2 }) }) }),
    { class: 'transient', retryAfter: 2, message: 'own words', causes: ['x', 'busy'] });
  expect(new AggregateError([new Error('a'), new Drop('b')], 'both'), { class: 'drop', message: 'both', causes: ['a', 'b'] });
  expect(new Transient('outer', { cause: new Transient('inner', { retryAfter: 3 }) }), { retryAfter: 3 });
  expect(new Permanent('outer', { cause: new Transient('inner', { retryAfter: 3 }) }), { class: 'permanent', retryAfter: undefined });
  assert.throws(() => new Transient('x', { retryAfter: '2' }), TypeError);
});

test('past the deadline all but what is said on purpose is a timeout', () => {
  const late = { late: true };
  for (const err of [new Error('x'), new Transient('x'), new TypeError('x'), undefined]) expect(err, { class: 'transient', reason: 'timeout', rule: 'timeout' }, late);
  expect(new Permanent('x'), { class: 'permanent', rule: 'explicit' }, late);
  expect(new Drop('x'), { class: 'drop' }, late);
  expect(new Transient('x', { retryAfter: 0 }), { class: 'transient', reason: 'transient', rule: 'explicit' }, late);
  expect(new Permanent('x'), { class: 'none', rule: 'cancelled' }, { cancelled: true, late: true });
});

test('classifiers come before the rules', async () => {
  class Declined extends Error {}
  const classifiers = [() => undefined, () => 'ack', err => err instanceof Declined && { class: 'permanent', code: 'declined' }, err => err instanceof SyntaxError && 'transient'];
  expect(new Declined('x'), { class: 'permanent', code: 'declined', rule: 'classifier', message: 'x' }, { classifiers });
  expect(await thrown(() => JSON.parse('{')), { class: 'transient', reason: 'transient', rule: 'classifier' }, { classifiers });
  expect(new Error('x'), { rule: 'unknown' }, { classifiers });
  expect(new Error('x'), { class: 'permanent', reason: 'panic', message: 'oh' }, { classifiers: [() => { throw new Error('oh'); }] });
});

test('deadline, canceled', async () => {
  const timeout = AbortSignal.timeout(1);
  while (!timeout.aborted) await sleep(1); // its own timer keeps no process alive
  expect(timeout.reason, { class: 'transient', rule: 'deadline', code: '' });
  expect(await thrown(() => fetch('http://127.0.0.1', { signal: timeout })), { class: 'transient', rule: 'deadline' });
  const aborted = AbortSignal.abort();
  expect(aborted.reason, { class: 'transient', rule: 'canceled' });
  expect(await thrown(() => sleep(1, undefined, { signal: aborted })), { class: 'transient', rule: 'canceled' });
  expect(await thrown(() => axios.get('http://127.0.0.1', { signal: aborted })), { class: 'transient', rule: 'canceled' });
  expect(aborted.reason, { class: 'none', rule: 'cancelled' }, { draining: true });
  expect(aborted.reason, { class: 'transient', rule: 'timeout' }, { draining: true, late: true });
});

test('network, with fetch, axios, net and dns', async () => {
  const url = `http://127.0.0.1:${await closedPort()}`;
  const network = { class: 'transient', rule: 'network' };
  expect(await thrown(() => fetch(url)), network);
  expect(await thrown(() => axios.get(url)), network);
  expect(await thrown(() => dns.lookup('no-such-host.invalid')), network);
  const hangUp = http.createServer((request, response) => response.destroy());
  await serving(hangUp, async address => {
    expect(await thrown(() => fetch(`http://${address}`)), network);
    expect(await thrown(() => axios.get(`http://${address}`)), network);
  });
  const silent = http.createServer(() => {});
  await serving(silent, async address => {
    expect(await thrown(() => axios.get(`http://${address}`, { timeout: 1 })), network);
  });
});

test('status, with axios', async () => {
  const server = http.createServer((request, response) => response.writeHead(Number(request.url.slice(1, 4)), request.headers.wish && { 'Retry-After': request.headers.wish }).end());
  await serving(server, async address => {
    for (const [status, verdict] of [[408, 'transient'], [425, 'transient'], [429, 'transient'], [500, 'transient'], [503, 'transient'], [400, 'permanent'], [404, 'permanent']]) {
      expect(await thrown(() => axios.get(`http://${address}/${status}`)), { class: verdict, rule: 'status', code: String(status), retryAfter: undefined });
    }
    const asking = wish => thrown(() => axios.get(`http://${address}/429`, { headers: { wish } }));
    expect(await asking('90'), { class: 'transient', retryAfter: 90 });
    expect(await asking('soon'), { class: 'transient', retryAfter: undefined });
    const { retryAfter } = classify(await asking(new Date(Date.now() + 3_600_000).toUTCString()));
    assert.ok(retryAfter > 3000 && retryAfter <= 3600, String(retryAfter));
    const fetched = async (status, headers) => new HttpError(await fetch(`http://${address}/${status}`, { headers }));
    expect(await fetched(503, { wish: '7' }), { class: 'transient', rule: 'status', code: '503', retryAfter: 7, message: 'HTTP 503 Service Unavailable' });
    expect(new Error('own', { cause: await fetched(404) }), { class: 'permanent', rule: 'status', code: '404', causes: ['HTTP 404 Not Found'] });
  });
});

test('sqlstate, with pg', async () => {
  for (const [state, wanted] of [
    ['40001', { class: 'transient', rule: 'sqlstate' }], ['08006', { class: 'transient' }], ['53300', { class: 'transient' }], ['57P01', { class: 'transient' }],
    ['23505', { class: 'permanent', rule: 'sqlstate' }], ['22P02', { class: 'permanent' }], ['42601', { class: 'permanent' }], ['57014', { rule: 'unknown' }],
  ]) {
    await serving(postgres(state), async (address, port) => {
      const client = new pg.Client({ host: '127.0.0.1', port, user: 'u', database: 'd', ssl: false });
      client.on('error', () => {});
      await client.connect();
      const err = await thrown(() => client.query('SELECT 1'));
      assert.ok(err instanceof pg.DatabaseError);
      expect(err, { ...wanted, code: state });
      await client.end();
    });
  }
});

/** As much of a PostgreSQL server as it takes to refuse a query. */
function postgres(state) {
  const message = (type, body) => {
    const head = Buffer.from(`${type}....`);
    head.writeInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
  };
  const ready = message('Z', Buffer.from('I'));
  return net.createServer(socket => {
    socket.on('error', () => {});
    socket.once('data', () => {
      socket.write(Buffer.concat([message('R', Buffer.alloc(4)), ready]));
      socket.on('data', query => {
        if (query[0] === 0x51) socket.write(Buffer.concat([message('E', Buffer.from(`SERROR\0C${state}\0Mno\0\0`)), ready]));
      });
    });
  });
}

test('grpc, with grpc-js', async () => {
  const server = new grpc.Server();
  const { Control } = definition();
  const unary = { Call: { ...Control, path: '/test/Call', requestStream: false, responseStream: false } };
  server.addService(unary, {
    Call(call, respond) {
      const metadata = new grpc.Metadata();
      if (call.request.seq > 100) metadata.set('grpc-status-details-bin', retryInfo(90));
      respond({ code: call.request.seq % 100, details: 'no', metadata });
    },
  });
  const port = await promisify(server.bindAsync.bind(server))('127.0.0.1:0', grpc.ServerCredentials.createInsecure());
  const client = new (grpc.makeGenericClientConstructor(unary, 'test'))(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  try {
    const call = promisify(client.Call.bind(client));
    for (const [code, verdict, word] of [
      [1, 'transient', 'Canceled'], [4, 'transient', 'DeadlineExceeded'], [8, 'transient', 'ResourceExhausted'], [10, 'transient', 'Aborted'],
      [13, 'transient', 'Internal'], [14, 'transient', 'Unavailable'], [3, 'permanent', 'InvalidArgument'], [5, 'permanent', 'NotFound'],
      [12, 'permanent', 'Unimplemented'], [16, 'permanent', 'Unauthenticated'],
    ]) expect(await thrown(() => call({ seq: code })), { class: verdict, rule: 'grpc', code: word });
    expect(await thrown(() => call({ seq: 2 })), { class: 'permanent', rule: 'unknown', code: 'Unknown' });
    expect(await thrown(() => call({ seq: 109 })), { class: 'transient', rule: 'grpc', retryAfter: 90.5, code: 'FailedPrecondition' });
  } finally {
    client.close();
    server.forceShutdown();
  }
});

test('a RetryInfo that is damaged says nothing', () => {
  for (const damaged of [Buffer.alloc(0), Buffer.from([0x1a]), Buffer.from([0x1a, 0xff, 0xff]), retryInfo(90).subarray(0, 20)]) {
    const metadata = new grpc.Metadata();
    metadata.set('grpc-status-details-bin', damaged);
    expect(Object.assign(new Error('later'), { code: 9, details: 'later', metadata }), { class: 'permanent', rule: 'grpc' });
  }
});

/** A google.rpc.Status with an Any of another type and a RetryInfo of this many seconds and a half. */
function retryInfo(seconds) {
  const field = (n, body) => Buffer.concat([Buffer.from([n << 3 | 2, body.length]), body]);
  const any = (type, value) => field(3, Buffer.concat([field(1, Buffer.from(`type.googleapis.com/${type}`)), field(2, value)]));
  const delay = Buffer.from([8, seconds, 16, 0x80, 0xca, 0xb5, 0xee, 1]); // 500,000,000 ns
  return Buffer.concat([Buffer.from([8, 9]), any('google.rpc.Help', Buffer.from([10, 0])), any('google.rpc.RetryInfo', field(1, delay))]);
}

test('json, bugs, and what nobody knows', async () => {
  expect(await thrown(() => JSON.parse('{"a":')), { class: 'permanent', reason: 'poison', rule: 'json' });
  for (const bug of [() => null.x, () => undefinedName, () => new Array(-1), () => assert.equal(1, 2)]) { // eslint-disable-line no-undef
    const v = classify(await thrown(bug));
    assert.deepEqual([v.class, v.reason, v.rule], ['permanent', 'panic', 'panic']);
    assert.match(v.stack, /rules\.test\.js/);
  }
  expect(new Error('odd'), { class: 'permanent', reason: 'permanent', rule: 'unknown', message: 'odd', code: '' });
  expect(Object.assign(new Error('odd'), { code: 'E_ODD' }), { rule: 'unknown', code: 'E_ODD' });
});

test('anything can be thrown', () => {
  for (const odd of [undefined, null, 0, '', 'text', Symbol('s'), {}, [], () => {}, Object.create(null), 10n]) expect(odd, { class: 'permanent', rule: 'unknown' });
  expect('text', { message: 'text' });
  const hostile = new Proxy(new Error('x'), { get() { throw new Error('hostile'); } });
  expect(hostile, { class: 'permanent' });
  const loop = new Error('loop');
  loop.cause = loop;
  expect(loop, { rule: 'unknown', causes: [] });
  let deep = new Error('0');
  for (let i = 1; i < 5000; i++) deep = new Error(String(i), { cause: deep });
  assert.equal(classify(deep).causes.length, 16);
});

test('temporary, retryAfter', () => {
  expect(Object.assign(new Error('x'), { temporary: true }), { class: 'transient', rule: 'temporary' });
  expect(Object.assign(new Error('x'), { $retryable: { throttling: true } }), { class: 'transient', rule: 'temporary' });
  expect(new Error('y', { cause: Object.assign(new Error('x'), { retryAfter: 2 }) }), { class: 'transient', rule: 'retry-after', retryAfter: 2 });
});
