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

/** For fetch, which has no error for a response that refuses. */
class HttpError extends Error {
  constructor(response) {
    super(`HTTP ${response.status} ${response.statusText ?? ''}`.trim());
    this.name = 'HttpError';
    Object.defineProperty(this, 'response', { value: response }); // not for logs
  }
}

/** Bytes that cannot be decoded, whatever is done to them. */
class Poison extends VerdictError {
  constructor(message, rule, options) {
    super({ class: 'permanent', reason: 'poison', rule }, message, options);
  }
}

module.exports = { Drop, HttpError, Permanent, Poison, Transient, verdict };
