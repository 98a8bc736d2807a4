'use strict';

// A thread of its own, which sees the end of the lifeline also while the handler
// keeps the main thread busy. The descriptor may not be read blockingly: the
// process would wait for the read when it exits.
const { Socket } = require('node:net');
const { Session } = require('node:inspector');
const fs = require('node:fs');
const { parentPort, workerData } = require('node:worker_threads');

// In ms: how long an idle main thread gets to exit by itself, and a busy one to
// be interrupted. After that it sits in a call to the system.
const ASK_AGAIN = 20;
const GIVE_UP = 500;

new Socket({ fd: workerData.fd, readable: true, writable: false })
  .on('error', () => {})
  .on('close', leave)
  .resume();

function leave() {
  try {
    fs.rmSync(workerData.socket, { force: true });
  } catch { // then it stays
  }
  parentPort.postMessage('exit');
  setTimeout(interrupt, ASK_AGAIN);
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), GIVE_UP);
}

/** Runs code on the main thread between two steps of a loop, as a debugger does. */
function interrupt() {
  const session = new Session();
  session.connectToMainThread();
  session.post('Runtime.evaluate', { expression: 'process.exit(0)' });
}
