'use strict';

/**
 * One call of the handler, for one record or a batch of them. An AbortController
 * costs as much as a record does, so there is none until somebody asks for it.
 */
class Call {
  late = false;
  lateAt; // when it will be late, once its time is over
  #controller;
  #over; // why the signal is aborted: [name, message]
  #cancelled; // handles that the host has cancelled

  /**
   * now and the deadline are on the clock of performance.now, in ms. A record's
   * time counts from its first call; a batch's deadline is the earliest.
   */
  constructor(records, now, draining) {
    this.records = records;
    this.draining = draining;
    this.deadline = Infinity;
    for (const r of records) {
      if (r.deadlineMs > 0) r.due ??= now + r.deadlineMs;
      if (r.due < this.deadline) this.deadline = r.due;
    }
  }

  get signal() {
    if (!this.#controller) {
      this.#controller = new AbortController();
      this.#abort();
    }
    return this.#controller.signal;
  }

  get timeLeft() {
    return Math.max(0, this.deadline - performance.now());
  }

  /** The first end counts. */
  end(name, message) {
    if (this.#over) return;
    this.#over = [name, message];
    this.#abort();
  }

  #abort() {
    if (this.#controller && this.#over) this.#controller.abort(new DOMException(this.#over[1], this.#over[0]));
  }

  /** The call of a batch goes on until all its records are cancelled. */
  cancel(handles) {
    const mine = this.records.filter(r => handles.has(r.handle));
    if (mine.length === 0) return;
    this.#cancelled ??= new Set();
    for (const r of mine) this.#cancelled.add(r.handle);
    if (this.#cancelled.size === this.records.length) this.end('AbortError', 'kconsume has cancelled the delivery');
  }

  cancelled(handle) {
    return this.#cancelled !== undefined && this.#cancelled.has(handle);
  }
}

module.exports = { Call };
