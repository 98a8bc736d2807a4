'use strict';

const inspector = require('node:inspector');

/** The handler was started with --handler-arg --debug, or with --handler-env KCONSUME_HANDLER_DEBUG=1. */
function debugWanted() {
  return process.argv.slice(2).includes('--debug') || process.env.KCONSUME_HANDLER_DEBUG === '1';
}

/** Holds the first records back until a debugger is attached. Node tells on stderr how. */
function awaitDebugger() {
  if (!inspector.url()) inspector.open();
  inspector.waitForDebugger();
}

module.exports = { awaitDebugger, debugWanted };
