'use strict';

const { Call } = require('./call');
const { CANCELLED, classify, timeout } = require('./classify');
const { Batch, Message, emittedOf, failuresOf } = require('./message');

// How long after its deadline a call counts as late, in ms. A handler that heeds
// its signal has its own say within it.
const LATE_AFTER = 10;
// How long calls may be started in one turn of the event loop, in ms: answers,
// beats and new records have to get their turn, too.
const TURN = 10;
const LONGEST_TIMER = 2 ** 31 - 1;

const nothing = () => ({ acked: [], verdicts: [], ended: [] });

/**
 * Calls a handler: at most concurrency calls at once, each under its deadline. A
 * call is for one record, or for a batch of them: what waits when there is room
 * for a call.
 *
 * A call that is not back shortly after its deadline is answered at once, as a
 * transient timeout and late; its handle comes once more in ended when it is.
 * Late calls do not count in concurrency as long as there are no more of them
 * than that, so that they starve nobody.
 *
 * send gets the answers, {acked, verdicts, ended}, once a turn of the event
 * loop; it returns false to get no more until resume is called.
 */
class Pool {
  #handler;
  #config;
  #send;
  #queue = []; // records, from #head on
  #head = 0;
  #again = []; // records of a batch that failed, to be handled once more, each alone
  #open = 0; // records not answered yet
  #calls = new Set(); // those that wait for something
  #late = 0;
  #pending = nothing();
  #turn; // when the first call of this turn was started
  #alarm;
  #alarmAt = Infinity;
  #held = false;
  #draining = new AbortController();
  #drained; // to be called when everything is answered
  #closed = false;

  /** batch is the most messages of a batch, undefined = no batches. */
  constructor(handler, { concurrency, classifiers, batch, send }) {
    this.#handler = handler;
    this.#config = { concurrency, classifiers, batch };
    this.#send = send;
  }

  deliver(records) {
    if (this.#closed || records.length === 0) return;
    for (const r of records) this.#queue.push(r);
    this.#open += records.length;
    this.#pump();
  }

  /** Those that have not begun are answered now, the others when they end. */
  cancel(list) {
    const handles = new Set(list);
    const left = r => {
      const cancelled = handles.has(r.handle);
      if (cancelled) this.#answer(r.handle, CANCELLED);
      return !cancelled;
    };
    this.#again = this.#again.filter(left);
    this.#queue = this.#queue.slice(this.#head).filter(left);
    this.#head = 0;
    for (const call of this.#calls) call.cancel(handles);
    this.#tick();
  }

  /** Calls done when everything delivered is answered. Late calls are not waited for. */
  drain(done) {
    this.#drained = done;
    this.#draining.abort();
    this.#tick();
  }

  /** Nobody wants answers any more. */
  close() {
    this.#closed = true;
    this.#queue = this.#again = [];
    clearTimeout(this.#alarm);
    for (const call of this.#calls) call.end('AbortError', 'kconsume is gone');
  }

  resume() {
    this.#held = false;
    this.#flush();
  }

  #pump() {
    while (!this.#closed && this.#hasRoom()) {
      const now = performance.now();
      if (now - (this.#turn ?? now) > TURN) return; // the next turn goes on
      const records = this.#take();
      if (records.length === 0) return;
      this.#tick(now);
      this.#start(new Call(records, now, this.#draining.signal));
    }
  }

  #hasRoom() {
    const { concurrency } = this.#config;
    return this.#calls.size < concurrency + Math.min(this.#late, concurrency);
  }

  /** The records of the next call. */
  #take() {
    if (this.#again.length > 0) return [this.#again.shift()];
    const most = Math.min(this.#head + (this.#config.batch ?? 1), this.#queue.length);
    let end = this.#head;
    while (end < most && !(lonely(this.#queue[end]) && end > this.#head)) {
      if (lonely(this.#queue[end++])) break;
    }
    const records = this.#queue.slice(this.#head, end);
    this.#head = end;
    if (end === this.#queue.length) {
      this.#queue = [];
      this.#head = 0;
    }
    return records;
  }

  #start(call) {
    const messages = call.records.map(r => new Message(r, call));
    const batch = this.#config.batch === undefined ? undefined : new Batch(messages, call);
    const settle = failure => this.#settle(call, messages, batch, failure);
    try {
      const result = this.#handler(batch ?? messages[0]);
      if (typeof result?.then !== 'function') return settle();
      this.#calls.add(call);
      this.#watch(call.deadline);
      Promise.resolve(result).then(() => settle(), err => settle({ err })).then(() => this.#pump());
    } catch (err) {
      settle({ err });
    }
  }

  #settle(call, messages, batch, failure) {
    this.#calls.delete(call);
    if (call.late) {
      this.#late--;
      for (const r of call.records) this.#pending.ended.push(r.handle);
    } else {
      const late = performance.now() >= call.deadline;
      const failures = batch && failuresOf(batch);
      for (const [i, record] of call.records.entries()) {
        const alone = failures?.get(messages[i]);
        const verdict = this.#judge(messages[i], alone ?? failure, { cancelled: call.cancelled(record.handle), late });
        if (!alone && messages.length > 1 && doubtful(verdict)) this.#again.push(record);
        else this.#answer(record.handle, verdict);
      }
    }
    call.end('AbortError', 'the call has returned');
    this.#tick();
  }

  /** undefined = acknowledged, and nothing to say. */
  #judge(message, failure, circumstances) {
    if (failure) {
      const draining = this.#draining.signal.aborted;
      return classify(failure.err, { ...circumstances, draining, classifiers: this.#config.classifiers });
    }
    const emitted = emittedOf(message);
    return emitted.length > 0 ? { class: 'ack', emitted } : undefined;
  }

  #answer(handle, verdict, late = false) {
    this.#open--;
    if (verdict) this.#pending.verdicts.push({ handle, verdict, late });
    else this.#pending.acked.push(handle);
  }

  /** Has the answers of this turn sent at its end, and the work go on after it. */
  #tick(now = performance.now()) {
    if (this.#turn !== undefined) return;
    this.#turn = now;
    setImmediate(() => {
      this.#turn = undefined;
      this.#flush();
      this.#pump();
    });
  }

  #flush() {
    if (this.#closed || this.#held) return;
    const { acked, verdicts, ended } = this.#pending;
    if (acked.length + verdicts.length + ended.length > 0) {
      const answers = this.#pending;
      this.#pending = nothing();
      this.#held = !this.#send(answers);
    }
    if (this.#drained && this.#open === 0) {
      const done = this.#drained;
      this.close();
      done();
    }
  }

  /** Deadlines mostly grow, so the alarm is set about once per timeout, not once per call. */
  #watch(at) {
    if (at >= this.#alarmAt) return;
    clearTimeout(this.#alarm);
    this.#alarmAt = at;
    this.#alarm = setTimeout(() => this.#expire(), Math.min(Math.ceil(at - performance.now()), LONGEST_TIMER));
  }

  /** It is right whenever it runs. A call whose time is over gets a turn to heed that, however late we are. */
  #expire() {
    this.#alarmAt = Infinity;
    const now = performance.now();
    for (const call of this.#calls) {
      if (call.late || call.deadline === Infinity) continue;
      if (now < call.deadline) {
        this.#watch(call.deadline);
      } else if (call.lateAt === undefined) {
        call.lateAt = now + LATE_AFTER;
        call.end('TimeoutError', 'the deadline of the delivery has passed');
        this.#watch(call.lateAt);
      } else if (now < call.lateAt) {
        this.#watch(call.lateAt);
      } else {
        this.#expired(call);
      }
    }
    this.#pump();
  }

  #expired(call) {
    call.late = true;
    this.#late++;
    for (const { handle, deadlineMs } of call.records) {
      this.#answer(handle, call.cancelled(handle) ? CANCELLED : timeout(deadlineMs), true);
    }
    this.#tick();
  }
}

/** The last of several attempts: the company that a record is in must not be what makes it a dead letter. */
const lonely = r => r.attempt > 1 && r.attempt >= r.maxAttempts;

/** All of a batch would be dead letters by what one of them may have caused. */
const doubtful = v => v?.class === 'permanent' && v.rule !== 'explicit';

module.exports = { Pool };
