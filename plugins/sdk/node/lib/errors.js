'use strict';

// A symbol of the whole process: two copies of this package in one handler
// understand each other's errors.
const verdict = Symbol.for('kconsume.handler.verdict');

/** An error with an explicit verdict; the classes below say which. */
class VerdictError extends Error {
  constructor(given, message, { cause, code } = {}) {
    const wraps = message instanceof Error;
    super(wraps ? message.message : String(message), wraps ? { cause: message } : cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    Object.defineProperty(this, verdict, { value: given });
  }
}

class Transient extends VerdictError {
  constructor(message, options = {}) {
    const { retryAfter } = options;
    if (retryAfter !== undefined && typeof retryAfter !== 'number') {
      throw new TypeError(`retryAfter is a number of seconds, not ${typeof retryAfter}`);
    }
    super({ class: 'transient', reason: 'transient', retryAfter, rule: 'explicit' }, message, options);
    this.retryAfter = retryAfter;
  }
}

class Permanent extends VerdictError {
  constructor(message, options) {
    super({ class: 'permanent', reason: 'permanent', rule: 'explicit' }, message, options);
  }
}

class Drop extends VerdictError {
  constructor(reason, options) {
    super({ class: 'drop', rule: 'explicit' }, reason, options);
  }
}

/** Bytes that cannot be decoded, whatever is done to them. */
class Poison extends VerdictError {
  constructor(message, rule, options) {
    super({ class: 'permanent', reason: 'poison', rule }, message, options);
  }
}

module.exports = { Drop, Permanent, Poison, Transient, verdict };
