'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const { inspect } = require('node:util');
const { credentials, isPipe } = require('./credentials');
const { debugWanted } = require('./debug');
const { listen, newServer } = require('./service');

// The handshake, as package wire of kconsume has it.
const CONTRACT = 1;
const COOKIE = ['KCONSUME_HANDLER', 'cc4f6a0e-handler-v1'];
const LIFELINE = 3; // a pipe that kconsume holds open
// As in sysexits.h.
const EX_USAGE = 64;
const EX_SOFTWARE = 70;

/** Runs handler for the kconsume that started this process, until kconsume ends it. */
function serve(config, handler) {
  check(config, handler);
  start(config, handler);
}

/** The same for a handler of batches of at most config.max messages. */
function serveBatch(config, handler) {
  check(config, handler);
  const { max = 100, concurrency = Infinity } = config;
  for (const n of [max, concurrency]) {
    if (n !== Infinity && !(Number.isInteger(n) && n > 0)) throw new TypeError(`serveBatch: ${n} is no number of messages or batches`);
  }
  start(config, handler, max);
}

function check(config, handler) {
  if (typeof config?.name !== 'string' || config.name === '') throw new TypeError('serve needs {name: "…"}');
  if (typeof handler !== 'function') throw new TypeError('serve needs a function that handles messages');
}

function start(config, handler, batch) {
  if (process.env[COOKIE[0]] !== COOKIE[1]) {
    process.stderr.write(usage(config, path.resolve(process.argv[1] ?? '.')));
    process.exit(EX_USAGE);
  }
  // A stray print must not stand between kconsume and the handshake.
  process.stdout.write = process.stderr.write.bind(process.stderr);
  process.on('uncaughtException', (err, origin) => fail(config, `${origin}: ${inspect(err)}`));
  // kconsume drains a handler before it stops it.
  process.on('SIGTERM', () => {}).on('SIGINT', () => {});
  connect({ ...config, debug: debugWanted() }, handler, batch).catch(err => fail(config, err.message));
}

async function connect(config, handler, batch) {
  const socket = path.join(process.env.PLUGIN_UNIX_SOCKET_DIR ?? '', `h${process.pid}`);
  watchLifeline(socket);
  await listen(newServer(config, handler, batch), socket, credentials());
  fs.writeSync(1, `1|${CONTRACT}|unix|${socket}|grpc|\n`); // 1 is go-plugin's own protocol
}

function watchLifeline(socket) {
  if (!isPipe(LIFELINE)) {
    throw new Error(`find the lifeline: descriptor ${LIFELINE} is not a pipe; start the handler with kconsume`);
  }
  const worker = new Worker(path.join(__dirname, 'lifeline.js'), { workerData: { fd: LIFELINE, socket } });
  worker.on('message', () => process.exit(0));
  worker.unref();
}

/** The line begins as Go's last words do: kconsume shows it as the reason of the exit. */
function fail({ name }, problem) {
  process.stderr.write(`fatal error: handler ${name}: ${problem}\n`);
  process.exit(EX_SOFTWARE);
}

/** What a person reads who starts a handler by hand. */
function usage({ name, version = '', topics = [] }, file) {
  const about = topics.length > 0 ? ` for ${topics.join(', ')}` : '';
  const launcher = `/usr/local/libexec/kconsume/handlers/kconsume-handler-${name}`;
  return `${[name, version].join(' ').trim()} is a kconsume handler${about}. It does nothing by itself: kconsume starts it.

Install it:   write the two lines that follow to ${launcher}, and chmod 0755 it

  #!/bin/sh
  exec node ${file} "$@"

Run it:       kconsume run --brokers HOST:9092 --group GROUP --topic ${topics[0] ?? 'TOPIC'} --handler ${name}
Try it out:   kconsume dev --handler ${launcher}
Inspect it:   kconsume plugin inspect ${launcher}
Debug it:     kconsume dev --handler ${launcher} --handler-arg --debug
`;
}

module.exports = { serve, serveBatch };
