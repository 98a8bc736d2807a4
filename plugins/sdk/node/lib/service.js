'use strict';

const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { awaitDebugger } = require('./debug');
const { Pool } = require('./pool');

const SDK = 'node/1';
const MAX_FRAME = 256 << 20; // received, in bytes
const WINDOW = 8 << 20; // of HTTP/2's flow control: frames of 1 MiB without waiting
// About the most that goes into one frame of verdicts; a larger one goes alone.
const FRAME = 1 << 20;
// The most that one verdict may take, its emitted records included.
const MAX_VERDICT = MAX_FRAME / 2;
// Bounds of what one verdict holds, in bytes.
const MAX_TEXT = 8 << 10;
const MAX_CODE = 256;
const MAX_STACK = 16 << 10;
const LONGEST_WISH = Number.MAX_SAFE_INTEGER; // ms
const OVERHEAD = 64; // of a verdict or an emitted record, beside its bytes, about
const DEFAULT_CONCURRENCY = 64;
const CLOSE_BOUND = 3000; // ms
const MAX_SOCKET_PATH = 107; // in bytes

const CLASSES = { none: 'UNSPECIFIED', ack: 'ACK', transient: 'TRANSIENT', permanent: 'PERMANENT', drop: 'DROP' };

/** The gRPC service definition of handler.proto. longs are numbers: handles are below 2^53. */
function definition() {
  const options = { longs: Number, enums: String, defaults: true, arrays: true };
  return loader.loadSync(path.join(__dirname, '..', 'handler.proto'), options)['kconsume.handler.v1.Handler'];
}

/** A gRPC server of one handler; batch is the most messages of a batch, undefined = no batches. */
function newServer(config, handler, batch) {
  const server = new grpc.Server({
    'grpc.max_receive_message_length': MAX_FRAME,
    'grpc.max_send_message_length': -1,
    'grpc-node.flow_control_window': WINDOW,
  });
  server.addService(definition(), { Deliver: stream => deliver(stream, config, handler, batch), Control: echo });
  return server;
}

/** Starts the server on a unix socket. */
async function listen(server, socket, credentials = grpc.ServerCredentials.createInsecure()) {
  const n = Buffer.byteLength(socket);
  if (n > MAX_SOCKET_PATH) { // Node would cut it without a word
    throw new Error(`listen on ${socket}: the path has ${n} bytes, more than ${MAX_SOCKET_PATH}: use a shorter runtime directory`);
  }
  await new Promise((ok, no) => {
    server.bindAsync(`unix:${socket}`, credentials, err => (err ? no(new Error(`listen on ${socket}: see whether the folder exists and may be written: ${err.message}`)) : ok()));
  });
}

function echo(stream) {
  stream.on('data', beat => stream.write(beat)).on('end', () => stream.end()).on('error', () => {});
}

/** Answers what the host sends, until the host asks for a drain, ends its side, or is gone. */
function deliver(stream, config, handler, batch) {
  let pool;
  let draining = false;
  const begin = frame => {
    pool ??= new Pool(handler, {
      concurrency: Math.min(frame?.start?.concurrency || DEFAULT_CONCURRENCY, config.concurrency ?? Infinity),
      classifiers: config.classifiers,
      batch,
      send: answers => send(stream, answers),
    });
  };
  const drain = () => {
    if (draining) return;
    draining = true;
    begin();
    pool.drain(() => goodbye(config).then(() => stream.end()));
  };
  const take = frame => {
    begin(frame);
    if (config.debug) for (const r of frame.records) r.deadlineMs = 0;
    pool.deliver(frame.records);
    if (frame.cancel.length > 0) pool.cancel(frame.cancel);
    if (frame.drain) drain();
  };
  stream.on('drain', () => pool?.resume());
  stream.on('cancelled', () => pool?.close());
  stream.on('error', () => pool?.close());
  stream.write({ hello: hello(config, batch) }, () => setImmediate(() => { // when Hello is on its way
    if (config.debug) awaitDebugger();
    stream.on('end', drain).on('data', take);
  }));
}

function hello({ name, version = '', topics = [], debug }, batch) {
  const capabilities = [...batch === undefined ? [] : ['batch'], ...debug ? ['debug'] : []];
  return {
    sdk: Buffer.from(SDK),
    name: Buffer.from(name),
    version: Buffer.from(String(version)),
    topics: topics.map(t => Buffer.from(t)),
    beatsMayWait: true,
    capabilities: capabilities.map(c => Buffer.from(c)),
  };
}

/** Lets the handler flush and close what it has, not longer than a while: the host waits, too. */
async function goodbye({ name, close }) {
  if (!close) return;
  const bound = new Promise((_, no) => {
    setTimeout(() => no(new Error(`not back after ${CLOSE_BOUND} ms: left behind`)), CLOSE_BOUND).unref();
  });
  try {
    await Promise.race([close(), bound]);
  } catch (err) {
    console.error(`close handler ${name}:`, err);
  }
}

/**
 * Sends answers, in more than one frame where they are large. Verdicts go before
 * ended: a handle is never in ended before its answer. Returns false when the
 * host should read first.
 */
function send(stream, { acked, verdicts, ended }) {
  let frame = { acked, verdicts: [] };
  let size = 0;
  for (const answer of verdicts) {
    const { verdict, bytes } = wireVerdict(answer);
    size += bytes;
    if (size > FRAME && frame.verdicts.length > 0) {
      stream.write(frame);
      frame = { verdicts: [] };
      size = bytes;
    }
    frame.verdicts.push(verdict);
  }
  frame.ended = ended;
  return stream.write(frame);
}

/** A verdict on the wire, and about its size there. One too large for any frame becomes a verdict about that. */
function wireVerdict({ handle, verdict: v, late }) {
  const emitted = v.emitted ?? [];
  const bytes = emitted.reduce((n, e) => n + emittedSize(e), OVERHEAD);
  if (bytes > MAX_VERDICT) {
    const message = `emitted records take ${bytes} bytes, at most ${MAX_VERDICT} fit; emit less for one record`;
    return wireVerdict({ handle, late, verdict: { class: 'permanent', reason: 'permanent', message, rule: 'emitted-size' } });
  }
  const verdict = {
    handle,
    class: CLASSES[v.class],
    reason: text(v.reason, MAX_CODE),
    code: text(v.code, MAX_CODE),
    message: text(v.message, MAX_TEXT),
    retryAfterMs: milliseconds(v.retryAfter),
    causes: (v.causes ?? []).map(c => text(c, MAX_TEXT)),
    stack: text(v.stack, MAX_STACK),
    rule: text(v.rule, MAX_CODE),
    emitted,
    late,
  };
  const texts = [verdict.message, verdict.stack, ...verdict.causes];
  return { verdict, bytes: texts.reduce((n, t) => n + (t?.length ?? 0), bytes) };
}

const emittedSize = ({ topic, key, value, headers }) => [topic, key, value, ...headers.flatMap(h => [h.key, h.value])]
  .reduce((n, b) => n + (b?.length ?? 0) + 8, OVERHEAD);

/** At most so many bytes of valid UTF-8, half surrogate pairs replaced. */
function text(s, max) {
  if (s === undefined || s === null) return undefined;
  const bytes = Buffer.from(String(s).slice(0, max));
  if (bytes.length <= max) return bytes;
  let end = max;
  while ((bytes[end] & 0xc0) === 0x80) end--; // not within a character
  return bytes.subarray(0, end);
}

function milliseconds(seconds) {
  return seconds > 0 ? Math.min(Math.round(seconds * 1000), LONGEST_WISH) : 0;
}

module.exports = { MAX_FRAME, definition, listen, newServer };
