'use strict';

// Handlers as processes of their own, started as kconsume starts them.
const assert = require('node:assert/strict');
const { execFileSync, spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');

const sdk = JSON.stringify(path.join(__dirname, '..'));
const cookie = { KCONSUME_HANDLER: 'cc4f6a0e-handler-v1' };

/** Starts a handler of this code; serve and the like are at hand. */
function start(t, code, { env = cookie, dir, lifeline = true } = {}) {
  const script = `const { serve, serveBatch } = require(${sdk}); const config = { name: 'orders', version: '1.2.3', topics: ['orders.confirmed'] }; ${code}`;
  const own = fs.mkdtempSync(path.join(os.tmpdir(), 'kc-'));
  t.after(() => fs.rmSync(own, { recursive: true }));
  const life = pipe(path.join(own, 'lifeline'));
  t.after(life.end);
  dir ??= fs.mkdtempSync(path.join(own, 'd'));
  const child = spawn(process.execPath, ['-e', script], {
    env: { ...process.env, PLUGIN_UNIX_SOCKET_DIR: dir, ...env }, stdio: ['ignore', 'pipe', 'pipe', lifeline ? life.readable : 'ignore'],
  });
  fs.closeSync(life.readable);
  t.after(() => child.kill('SIGKILL'));
  const handler = { child, endLifeline: life.end, stdout: '', stderr: '', exit: once(child, 'close') };
  child.stdout.on('data', b => { handler.stdout += b; });
  child.stderr.on('data', b => { handler.stderr += b; });
  return handler;
}

/** A pipe as kconsume makes it; what Node makes for stdio is a socket. */
function pipe(file) {
  execFileSync('mkfifo', [file]);
  const writable = fs.openSync(file, 'r+'); // without a reader 'w' would wait for one
  let open = true;
  const end = () => {
    if (open) fs.closeSync(writable);
    open = false;
  };
  return { readable: fs.openSync(file, 'r'), end };
}

async function shakesHands(handler) {
  while (!handler.stdout.includes('\n')) await once(handler.child.stdout, 'data');
}

test('started by hand it says what it is', async t => {
  const h = start(t, 'serve(config, () => {})', { env: {} });
  assert.deepEqual(await h.exit, [64, null]);
  assert.equal(h.stdout, '');
  for (const part of ['orders 1.2.3 is a kconsume handler for orders.confirmed', 'kconsume-handler-orders', '--topic orders.confirmed --handler orders']) {
    assert.ok(h.stderr.includes(part), h.stderr);
  }
});

test('what is wrong at the start is said, with status 70', async t => {
  const long = path.join(os.tmpdir(), 'x'.repeat(100));
  for (const [options, words] of [
    [{ lifeline: false }, /descriptor 3 is not a pipe/],
    [{ dir: long }, /the path has \d+ bytes, more than 107: use a shorter runtime directory/],
    [{ dir: path.join(os.tmpdir(), 'no', 'such', 'folder') }, /listen on .*: see whether the folder exists and may be written/],
    [{ env: { ...cookie, KCONSUME_TLS_FD: '77' } }, /KCONSUME_TLS_FD="77" names no pipe/],
  ]) {
    const h = start(t, 'serve(config, () => {})', options);
    assert.deepEqual(await h.exit, [70, null]);
    assert.match(h.stderr, words);
    assert.match(h.stderr, /^fatal error: handler orders: /m);
    assert.equal(h.stdout, '');
  }
  for (const misuse of ['serve()', 'serve({}, () => {})', 'serve(config)', 'serveBatch({ ...config, max: 0 }, () => {})', 'serveBatch({ ...config, concurrency: 1.5 }, () => {})']) {
    const h = start(t, misuse);
    assert.notEqual((await h.exit)[0], 0);
    assert.match(h.stderr, /TypeError: serve/);
  }
});

test('the handshake is all that stdout gets, and the lifeline ends it', async t => {
  const h = start(t, 'serve(config, () => {}); console.log("a print"); process.on("exit", () => console.error("bye"))');
  await shakesHands(h);
  const [, socket] = /^1\|1\|unix\|([^|]+)\|grpc\|\n$/.exec(h.stdout);
  assert.ok(fs.statSync(socket).isSocket());
  h.child.kill('SIGTERM');
  h.child.kill('SIGINT');
  h.endLifeline();
  assert.deepEqual(await h.exit, [0, null]);
  assert.match(h.stderr, /a print\n(.|\n)*bye\n/);
  assert.equal(fs.existsSync(socket), false);
});

for (const [name, code] of [['a loop', 'for (;;);'], ['a wait', 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);']]) {
  test(`the lifeline ends ${name} on the main thread`, async t => {
    const h = start(t, `serve(config, () => {}); setImmediate(function look() {
      if (require('fs').readdirSync(process.env.PLUGIN_UNIX_SOCKET_DIR).length === 0) return setImmediate(look);
      console.log('begun'); ${code}
    })`);
    while (!h.stderr.includes('begun')) await once(h.child.stderr, 'data');
    h.endLifeline();
    assert.deepEqual(await h.exit, [0, null]);
  });
}

test('a failure that nobody catches ends the process and is said first', async t => {
  for (const code of ['setTimeout(() => { throw new Error("forgotten"); }, 1)', 'Promise.reject(new Error("forgotten"))']) {
    const h = start(t, `serve(config, () => {}); ${code}`);
    assert.deepEqual(await h.exit, [70, null]);
    assert.match(h.stderr, /^fatal error: handler orders: (uncaughtException|unhandledRejection): Error: forgotten\n/);
  }
});
