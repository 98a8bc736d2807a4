'use strict';

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const { MAX_FRAME, definition, listen, newServer } = require('./service');

const CLASSES = { UNSPECIFIED: 'none', ACK: 'ack', TRANSIENT: 'transient', PERMANENT: 'permanent', DROP: 'drop' };

/**
 * Runs a handler on records, over a real connection, and returns its answers in
 * the order of the records. With batch, the handler gets batches of at most so
 * many messages.
 */
async function run(handler, records, { name = 'test', classifiers, batch, concurrency, timeout } = {}) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'kc-'));
  const server = newServer({ name, classifiers }, handler, batch);
  try {
    const socket = path.join(dir, 's');
    await listen(server, socket);
    return await deliver(socket, records.map((r, i) => wireRecord(r, i, timeout)), concurrency);
  } finally {
    server.forceShutdown();
    fs.rmSync(dir, { recursive: true });
  }
}

async function deliver(socket, records, concurrency) {
  const Client = grpc.makeGenericClientConstructor(definition(), 'Handler');
  const client = new Client(`unix:${socket}`, grpc.credentials.createInsecure(), {
    'grpc.max_receive_message_length': MAX_FRAME, 'grpc.max_send_message_length': -1,
  });
  try {
    const answers = new Array(records.length);
    const stream = client.Deliver();
    stream.write({ start: { concurrency }, records });
    stream.write({ drain: true });
    stream.end();
    for await (const frame of stream) {
      for (const handle of frame.acked) answers[handle] = { class: 'ack', emitted: [] };
      for (const v of frame.verdicts) answers[v.handle] = answerOf(v);
    }
    return answers;
  } finally {
    client.close();
  }
}

function wireRecord(r, i, timeout) {
  const { topic = 'test', partition = 0, offset = i, time = new Date(), attempt = 1, maxAttempts = 3, stage = 'main' } = r;
  const timeMs = time === null ? -1 : Number(time);
  return {
    handle: i,
    id: bytes(r.id ?? `${topic}/${partition}/${offset}@${timeMs}`),
    topic: bytes(topic),
    partition,
    offset,
    timeMs,
    key: bytes(r.key),
    value: bytes(r.value),
    headers: (r.headers ?? []).map(h => ({ key: bytes(h.key), value: bytes(h.value) })),
    attempt,
    maxAttempts,
    stage: bytes(stage),
    trace: bytes(r.trace),
    traceState: bytes(r.traceState),
    deadlineMs: timeout === undefined ? 0 : Math.ceil(timeout * 1000),
  };
}

const bytes = b => (b === null || b === undefined ? undefined : Buffer.from(b));

function answerOf(v) {
  return {
    class: CLASSES[v.class],
    reason: v.reason.toString(),
    code: v.code.toString(),
    message: v.message.toString(),
    retryAfter: v.retryAfterMs / 1000,
    causes: v.causes.map(String),
    stack: v.stack.toString(),
    rule: v.rule.toString(),
    late: v.late,
    emitted: v.emitted.map(e => ({
      topic: e.topic.toString(),
      key: e.key ?? null,
      value: e.value ?? null,
      headers: e.headers.map(h => ({ key: h.key.toString(), value: h.value ?? null })),
    })),
  };
}

module.exports = { run };
