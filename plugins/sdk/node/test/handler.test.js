'use strict';

// Handlers over a real connection, in this process.
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const { Drop, Permanent, Transient } = require('..');
const { run } = require('../lib/testing');
const { connect } = require('./host');

const never = 2 ** 31 - 1;
const classes = answers => answers.map(a => a.class);

test('the contract is the one of kconsume', () => {
  const [ours, theirs] = [path.join(__dirname, '../handler.proto'), path.join(__dirname, '../../../../plugin/proto/handler.proto')];
  assert.ok(fs.readFileSync(ours).equals(fs.readFileSync(theirs)), 'copy plugin/proto/handler.proto to plugins/sdk/node');
});

test('a message has all that the record has', async () => {
  let seen;
  const headers = [{ key: 'a', value: '0' }, { key: 'a', value: '1' }, { key: Buffer.from([0x78, 0xff]), value: null }, { key: '', value: '' }];
  const record = { id: 'an id', topic: 'größe', partition: 3, offset: 2 ** 52, key: '', value: null, time: new Date(5), attempt: 2, maxAttempts: 4, stage: 'retry.5s', headers };
  await run(m => { seen = m; }, [record], { timeout: 60 });
  const { id, topic, partition, offset, key, value, time, attempt, maxAttempts, stage } = seen;
  assert.deepEqual({ id, topic, partition, offset, key, value, time, attempt, maxAttempts, stage, headers },
    { ...record, key: Buffer.alloc(0) });
  assert.deepEqual(seen.headers[2], { key: 'x\ufffd', rawKey: Buffer.from([0x78, 0xff]), value: null });
  assert.deepEqual([seen.header('a'), seen.header(''), seen.header('b')], [Buffer.from('1'), Buffer.alloc(0), undefined]);
  assert.ok(seen.timeLeft > 0 && seen.timeLeft <= 60_000);
  await run(m => { seen = m; }, [{ time: null }]);
  assert.deepEqual([seen.time, seen.timeLeft], [null, Infinity]);
});

test('the trace is the delivery\'s, else the record\'s own', async () => {
  const seen = [];
  const own = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  const headers = [{ key: 'traceparent', value: 'x' }, { key: 'traceparent', value: own }, { key: 'tracestate', value: 'a=1' }];
  await run(m => { seen.push([m.trace, m.traceState]); }, [
    { headers }, { headers, trace: '00-delivery' }, { headers, trace: '00-delivery', traceState: 'b=2' }, { headers: [{ key: 'traceparent', value: null }] },
  ], { concurrency: 1 });
  assert.deepEqual(seen, [[own, 'a=1'], ['00-delivery', ''], ['00-delivery', 'b=2'], ['', '']]);
});

test('functions of every kind', async () => {
  const answers = await Promise.all([
    run(() => {}, [{}]),
    run(() => 'whatever', [{}]),
    run(async () => { await sleep(1); }, [{}]),
    run(() => { throw new Drop('sync'); }, [{}]),
    run(async () => { await sleep(1); throw new Drop('async'); }, [{}]),
    run(() => Promise.reject(), [{}]), // eslint-disable-line prefer-promise-reject-errors
    run(() => ({ then: (ok, no) => no(new Drop('thenable')) }), [{}]),
  ]);
  assert.deepEqual(classes(answers.flat()), ['ack', 'ack', 'ack', 'drop', 'drop', 'permanent', 'drop']);
});

test('JSON, and what is none', async () => {
  const seen = [];
  const answers = await run(m => { seen.push(m.json()); }, ['{"a":[1]}', 'null', '', '\ufeff{}', null].map(value => ({ value })));
  assert.deepEqual(seen, [{ a: [1] }, null]);
  assert.deepEqual(classes(answers), ['ack', 'ack', 'permanent', 'permanent', 'permanent']);
  for (const a of answers.slice(2)) assert.deepEqual([a.reason, a.rule], ['poison', 'json']);
});

test('emitted records, null and empty kept apart', async () => {
  const [answer, refused] = await run(m => {
    if (m.offset === 1) m.emit({ topic: 'out', value: 7 });
    m.emit({ topic: 'out', key: null, value: '' });
    m.emit({ topic: 'out', key: new Uint8Array([1]), headers: m.headers });
  }, [{ headers: [{ key: 'h', value: null }, { key: 'h', value: '' }] }, {}]);
  assert.deepEqual(answer.emitted, [
    { topic: 'out', key: null, value: Buffer.alloc(0), headers: [] },
    { topic: 'out', key: Buffer.from([1]), value: null, headers: [{ key: 'h', value: null }, { key: 'h', value: Buffer.alloc(0) }] },
  ]);
  assert.deepEqual([refused.class, refused.reason, refused.emitted], ['permanent', 'panic', []]);
});

test('texts are cut, and half a surrogate pair ends no stream', async () => {
  const answers = await run(m => { throw new Permanent(m.value.toString() + '\ud83d', { code: 'c'.repeat(1000), cause: new Error('€'.repeat(9000)) }); },
    [{ value: 'bad ' }, { value: 'ä'.repeat(9000) }]);
  assert.equal(answers[0].message, 'bad \ufffd');
  assert.equal(answers[0].code.length, 256);
  assert.equal(answers[0].causes[0], '€'.repeat(2730)); // not within a character
  assert.equal(answers[1].message, 'ä'.repeat(4096));
});

test('large verdicts go in frames of their own, a too large one is told', async () => {
  const sizes = [1 << 20, 3 << 20, 10, 129 << 20, 20 << 20];
  const answers = await run(m => m.emit({ topic: 'out', value: Buffer.alloc(sizes[m.offset]) }), sizes.map(() => ({})));
  assert.deepEqual(answers.map(a => a.emitted[0]?.value.length), [1 << 20, 3 << 20, 10, undefined, 20 << 20]);
  assert.deepEqual([answers[3].class, answers[3].rule], ['permanent', 'emitted-size']);
});

test('verdicts come in frames of about 1 MiB, and headers byte for byte', async () => {
  const host = await connect(m => m.emit({ topic: 'out', value: Buffer.alloc(600_000), headers: m.headers }));
  try {
    const odd = Buffer.from([0x78, 0xff]);
    await host.deliver({}, [1, 2, 3, 4].map(handle => ({ handle, headers: [{ key: odd, value: undefined }] })));
    await host.answered(4);
    assert.equal(host.frames, 4);
    assert.deepEqual(host.answers.get(4).emitted[0].headers, [{ key: odd }]);
  } finally {
    host.close();
  }
});

test('at most concurrency calls at once, and all of them', async () => {
  let running = 0;
  let most = 0;
  const answers = await run(async () => {
    most = Math.max(most, ++running);
    await sleep(1);
    running--;
  }, new Array(50).fill({}), { concurrency: 7 });
  assert.equal(most, 7);
  assert.deepEqual(new Set(classes(answers)), new Set(['ack']));
});

test('who heeds the deadline has his own say', async () => {
  const reasons = [];
  const answers = await run(async m => {
    await sleep(never, undefined, { signal: m.signal }).catch(() => {});
    reasons.push(m.signal.reason.name);
    if (m.offset === 1) throw new Permanent('on purpose');
    if (m.offset === 2) throw new Error('cut off');
  }, [{}, {}, {}], { timeout: 0.02 });
  assert.deepEqual(reasons, ['TimeoutError', 'TimeoutError', 'TimeoutError']);
  assert.deepEqual(answers.map(a => a.class), ['ack', 'permanent', 'transient']);
  assert.equal(answers[2].reason, 'timeout');
});

test('late calls are answered, end later, and starve nobody', async () => {
  const gates = new Map();
  const host = await connect(m => (m.key ? new Promise(open => gates.set(m.offset, open)) : undefined));
  try {
    await host.deliver({ concurrency: 2 }, [1, 2, 3].map(h => ({ handle: h, key: 'wait', deadlineMs: 20 })));
    await host.answered(3);
    for (const h of [1, 2, 3]) assert.deepEqual([host.answers.get(h).late, host.answers.get(h).reason.toString()], [true, 'timeout']);
    await host.deliver({}, [{ handle: 4 }, { handle: 5 }]);
    await host.answered(5);
    assert.deepEqual(host.ended, []);
    gates.get(2)();
    await host.until(() => host.ended.length === 1);
    assert.deepEqual(host.ended, [2]);
    await host.drain(); // does not wait for the two others
    assert.equal(host.answers.size, 5);
  } finally {
    host.close();
  }
});

test('cancel: what waits now, what runs when it ends, and an acknowledgement counts', async () => {
  const signals = [];
  let open;
  const gate = new Promise(ok => { open = ok; });
  const host = await connect(async m => {
    if (m.offset === 1) return gate;
    signals.push(m.signal);
    return sleep(never, undefined, { signal: m.signal });
  });
  try {
    await host.deliver({ concurrency: 2 }, [1, 2, 3].map(handle => ({ handle, deadlineMs: 60_000 })));
    await host.cancel(3, 99);
    await host.answered(1);
    await host.cancel(1, 2);
    await host.answered(2);
    for (const h of [2, 3]) assert.deepEqual([host.answers.get(h).class, host.answers.get(h).rule.toString()], ['UNSPECIFIED', 'cancelled']);
    assert.deepEqual(signals.map(s => s.reason.name), ['AbortError']);
    open();
    await host.answered(3);
    assert.equal(host.answers.get(1), 'ack');
  } finally {
    host.close();
  }
});

test('draining: a call may hand its record back', async () => {
  let closed = 0;
  const host = await connect(m => sleep(m.offset === 1 ? never : 50, undefined, { signal: m.offset === 1 ? m.draining : undefined }), { close: async () => { closed++; } });
  try {
    await host.deliver({}, [{ handle: 1 }, { handle: 2 }]);
    await host.drain();
    assert.deepEqual([host.answers.get(1).class, host.answers.get(2)], ['UNSPECIFIED', 'ack']);
    assert.equal(closed, 1);
  } finally {
    host.close();
  }
});

test('a host that hangs up has its calls cancelled', async () => {
  let aborted;
  const over = new Promise(ok => { aborted = ok; });
  const host = await connect(m => {
    m.signal.addEventListener('abort', () => aborted(m.signal.reason.name));
    return new Promise(() => {});
  });
  await host.deliver({}, [{ handle: 1 }]);
  await host.beat(1);
  host.close();
  assert.equal(await over, 'AbortError');
});

test('calls that never wait leave beats their turn', async () => {
  let calls = 0;
  const host = await connect(async () => {
    calls++;
    for (const end = performance.now() + 1; performance.now() < end;);
  });
  try {
    await host.deliver({ concurrency: 4 }, Array.from({ length: 300 }, (_, i) => ({ handle: i })));
    await host.beat(7);
    assert.ok(calls < 300, `the beat came back after ${calls} calls`);
    await host.answered(300);
  } finally {
    host.close();
  }
});

test('batches are what waits, and each record has its own answer', async () => {
  const sizes = [];
  const answers = await run(batch => {
    sizes.push(batch.length);
    for (const [i, m] of batch.messages.entries()) if (m.offset % 5 === 0) batch.fail(i, new Drop('odd'));
  }, new Array(25).fill({}), { batch: 10 });
  assert.deepEqual(sizes, [10, 10, 5]);
  assert.deepEqual(classes(answers), Array.from({ length: 25 }, (_, i) => (i % 5 === 0 ? 'drop' : 'ack')));
});

test('a batch fails with what may pass: all of it, once', async () => {
  let calls = 0;
  const answers = await run(batch => {
    calls++;
    batch.fail(0, new Permanent('mine'));
    batch.messages[1].emit({ topic: 'out', value: 'lost' });
    throw new Transient('all');
  }, [{}, {}, {}], { batch: 10 });
  assert.deepEqual([calls, classes(answers)], [1, ['permanent', 'transient', 'transient']]);
  assert.deepEqual(answers[1].emitted, []);
});

test('a bug in a batch is only the guilty record\'s', async () => {
  const sizes = [];
  const answers = await run(async batch => {
    sizes.push(batch.length);
    for (const m of batch) {
      m.emit({ topic: 'out' });
      m.json();
    }
  }, [{ value: '1' }, { value: '{' }, { value: '3' }, { value: '4', attempt: 3 }], { batch: 10 });
  assert.deepEqual(sizes, [3, 1, 1, 1, 1]);
  assert.deepEqual(classes(answers), ['ack', 'permanent', 'ack', 'ack']);
  assert.deepEqual(answers.map(a => a.emitted.length), [1, 0, 1, 1]);
});

test('batch.fail refuses what names nothing', async () => {
  for (const misuse of [b => b.fail(1, new Error('x')), b => b.fail(-1, new Error('x')), b => b.fail(0), b => b.fail('x', new Error('x'))]) {
    const [answer] = await run(misuse, [{}], { batch: 10 });
    assert.deepEqual([answer.class, answer.reason], ['permanent', 'panic']);
  }
});

test('a batch is cancelled when all of it is', async () => {
  let seen;
  const began = new Promise(ok => { seen = ok; });
  const host = await connect(batch => {
    seen(batch);
    return sleep(never, undefined, { signal: batch.signal });
  }, {}, 10);
  try {
    await host.deliver({ concurrency: 1 }, [{ handle: 1 }, { handle: 2 }]);
    const batch = await began;
    await host.cancel(1);
    await host.beat(1);
    assert.equal(batch.signal.aborted, false);
    await host.cancel(2);
    await host.answered(2);
    assert.deepEqual([host.answers.get(1).class, host.answers.get(2).class], ['UNSPECIFIED', 'UNSPECIFIED']);
  } finally {
    host.close();
  }
});
