'use strict';

const { Poison } = require('./errors');

// Texts that are the same in most records of a frame are made once.
const memo = () => {
  let bytes = Buffer.alloc(0);
  let text = '';
  return b => {
    if (!bytes.equals(b)) [bytes, text] = [Buffer.from(b), b.toString()];
    return text;
  };
};
const topicText = memo();
const stageText = memo();

let emittedOf;

/** One delivery of one record. Its bytes must not be changed. */
class Message {
  #call;
  #emitted = [];
  #trace;

  static {
    emittedOf = m => m.#emitted;
  }

  constructor(record, call) {
    this.#call = call;
    this.id = record.id.toString();
    this.topic = topicText(record.topic);
    this.partition = record.partition;
    this.offset = record.offset;
    this.key = record.key ?? null;
    this.value = record.value ?? null;
    this.headers = record.headers.map(h => ({ key: h.key.toString(), rawKey: h.key, value: h.value ?? null }));
    this.time = record.timeMs === -1 ? null : new Date(record.timeMs);
    this.attempt = record.attempt;
    this.maxAttempts = record.maxAttempts;
    this.stage = stageText(record.stage);
    this.#trace = record.trace?.length ? [record.trace, record.traceState] : null;
  }

  get trace() {
    return String(this.#trace?.[0] ?? this.header('traceparent') ?? '');
  }

  get traceState() {
    return String(this.#trace ? this.#trace[1] : this.header('tracestate') ?? '');
  }

  get signal() {
    return this.#call.signal;
  }

  get timeLeft() {
    return this.#call.timeLeft;
  }

  get draining() {
    return this.#call.draining;
  }

  header(name) {
    for (let i = this.headers.length - 1; i >= 0; i--) if (this.headers[i].key === name) return this.headers[i].value;
    return undefined;
  }

  json() {
    if (this.value === null) throw new Poison('value is not JSON: it is null', 'json');
    try {
      return JSON.parse(this.value.toString());
    } catch (err) {
      throw new Poison(`value is not JSON (${this.value.length} bytes)`, 'json', { cause: err });
    }
  }

  emit({ topic, key, value, headers = [] }) {
    if (!topic) throw new TypeError('emit needs a topic');
    this.#emitted.push({
      topic: bytes(topic, 'topic'),
      key: bytes(key, 'key'),
      value: bytes(value, 'value'),
      headers: headers.map(h => ({ key: bytes(h.rawKey ?? h.key, 'name of a header'), value: bytes(h.value, 'value of a header') })),
    });
  }
}

function bytes(b, what) {
  if (b === null || b === undefined || Buffer.isBuffer(b)) return b ?? undefined;
  if (typeof b === 'string') return Buffer.from(b);
  if (b instanceof Uint8Array) return Buffer.from(b.buffer, b.byteOffset, b.byteLength);
  throw new TypeError(`the ${what} is ${typeof b}; give a string or a Buffer`);
}

let failuresOf;

/** What a batch handler gets: messages that were waiting together. */
class Batch {
  #call;
  #failures = new Map();

  static {
    failuresOf = b => b.#failures;
  }

  constructor(messages, call) {
    this.messages = messages;
    this.#call = call;
  }

  get signal() {
    return this.#call.signal;
  }

  get timeLeft() {
    return this.#call.timeLeft;
  }

  get draining() {
    return this.#call.draining;
  }

  get length() {
    return this.messages.length;
  }

  [Symbol.iterator]() {
    return this.messages[Symbol.iterator]();
  }

  fail(i, err) {
    const message = this.messages[i];
    if (!message) throw new RangeError(`batch.fail(${i}): the batch has ${this.length} messages`);
    if (err === undefined || err === null) throw new TypeError(`batch.fail(${i}, err) needs an error`);
    this.#failures.set(message, { err });
  }
}

module.exports = { Batch, Message, emittedOf, failuresOf };
