'use strict';

const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const { definition, listen, newServer } = require('../lib/service');

/** The host's side of the wire, frame by frame, to a handler in this process. */
class Host {
  answers = new Map(); // by handle: "ack" or a verdict
  ended = [];
  frames = 0; // of answers
  #closers;
  #client;
  #stream;
  #control;
  #over = false;
  #changed = () => {};

  constructor(client, closers) {
    this.#client = client;
    this.#closers = closers;
    this.#stream = client.Deliver();
    this.#control = client.Control().on('error', () => {});
    this.#stream.on('error', () => {}).on('end', () => {
      this.#over = true;
      this.#changed();
    });
    this.#stream.on('data', frame => {
      if (!frame.hello) this.frames++;
      for (const h of frame.acked) this.#note(h, 'ack');
      for (const v of frame.verdicts) this.#note(v.handle, v);
      this.ended.push(...frame.ended);
      this.#changed();
    });
  }

  #note(handle, answer) {
    if (this.answers.has(handle)) throw new Error(`${handle} is answered twice`);
    this.answers.set(handle, answer);
  }

  write(frame) {
    return new Promise(ok => this.#stream.write(frame, ok));
  }

  deliver({ concurrency }, records) {
    const bytes = b => (b === undefined ? undefined : Buffer.from(b));
    return this.write({ start: { concurrency }, records: records.map(r => ({ offset: r.handle, ...r, key: bytes(r.key), value: bytes(r.value) })) });
  }

  cancel(...handles) {
    return this.write({ cancel: handles });
  }

  /** Resolves when the handler has ended the stream. */
  async drain() {
    await this.write({ drain: true });
    await this.until(() => this.#over);
  }

  answered(n) {
    return this.until(() => this.answers.size >= n);
  }

  async until(holds) {
    while (!holds()) {
      if (this.#over) throw new Error('the stream has ended');
      await new Promise(ok => { this.#changed = ok; });
    }
  }

  /** Resolves when the beat has come back. */
  async beat(seq) {
    this.#control.write({ seq });
    const [beat] = await once(this.#control, 'data');
    if (beat.seq !== seq) throw new Error(`beat ${beat.seq} came back, not ${seq}`);
  }

  close() {
    this.#stream.cancel();
    this.#control.cancel();
    this.#client.close();
    for (const close of this.#closers) close();
  }
}

async function connect(handler, config = {}, batch = undefined) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'kc-'));
  const socket = path.join(dir, 's');
  const server = newServer({ name: 'test', ...config }, handler, batch);
  await listen(server, socket);
  const Client = grpc.makeGenericClientConstructor(definition(), 'Handler');
  const client = new Client(`unix:${socket}`, grpc.credentials.createInsecure());
  return new Host(client, [() => server.forceShutdown(), () => fs.rmSync(dir, { recursive: true })]);
}

module.exports = { connect };
