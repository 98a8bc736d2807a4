'use strict';

const { inspect, types } = require('node:util');
const { verdict: explicit } = require('./errors');
const { builtin, codeOf, find, isAbort, isPanic, tree, wish } = require('./rules');

const CANCELLED = Object.freeze({ class: 'none', rule: 'cancelled' });
const MAX_CAUSES = 16;
const REASONS = {
  transient: ['transient', 'timeout'],
  permanent: ['permanent', 'poison', 'panic'],
};

/**
 * Turns what a handler threw into a verdict. It looks at types, codes and
 * statuses, never at texts; the first rule that matches counts and is recorded
 * in the verdict's rule. The order is that of kconsume's Go package plugin.
 */
function classify(err, { cancelled = false, draining = false, late = false, classifiers = [] } = {}) {
  if (cancelled) return CANCELLED;
  try {
    if (draining && !late && find(err, isAbort)) return CANCELLED; // handed back
    return describe(judge(err, late, classifiers), err);
  } catch (broken) { // a getter that throws, a proxy, a classifier's own mistake
    return describe({ class: 'permanent', reason: 'panic', rule: 'panic' }, broken instanceof Error ? broken : new Error('threw what cannot be read'));
  }
}

function judge(err, late, classifiers) {
  const wrapper = find(err, e => e[explicit]);
  const given = wrapper?.[explicit];
  if (late && !(given && (given.class !== 'transient' || given.retryAfter !== undefined))) {
    return { class: 'transient', reason: 'timeout', rule: 'timeout', stack: isPanic(err) ? err.stack : undefined };
  }
  if (given) {
    const retryAfter = given.class === 'transient' ? given.retryAfter ?? wish(wrapper.cause) : undefined;
    return { ...given, retryAfter, code: wrapper.code };
  }
  for (const ask of classifiers) {
    const answer = ask(err);
    const v = typeof answer === 'string' ? { class: answer } : answer;
    if (v?.class === 'transient' || v?.class === 'permanent' || v?.class === 'drop') return { rule: 'classifier', ...v };
  }
  for (const [rule, match] of builtin) {
    const v = match(err);
    if (v) return { ...v, rule };
  }
  if (isPanic(err)) return { class: 'permanent', reason: 'panic', rule: 'panic', stack: err.stack, message: String(err) };
  return { class: 'permanent', rule: 'unknown', stack: err?.stack };
}

/** Fills in what v lacks from err. */
function describe(v, err) {
  const message = v.message ?? textOf(err);
  const known = REASONS[v.class] ?? [];
  return {
    ...v,
    message,
    reason: known.includes(v.reason) ? v.reason : known[0] ?? '',
    code: v.code ?? codeOf(err),
    causes: v.causes ?? causes(err, textOf(err)),
  };
}

function textOf(err) {
  if (types.isNativeError(err) || err instanceof Error) return String(err.message) || String(err.name);
  return typeof err === 'string' ? err : `threw ${inspect(err, { depth: 1 })}`;
}

/** The texts of what err was caused by, outermost first, without repetitions. */
function causes(err, last) {
  const list = [];
  for (const e of tree(err)) {
    const text = e instanceof Error || typeof e === 'string' ? textOf(e) : last; // others are no texts
    if (text === last) continue;
    last = text;
    if (list.push(text) === MAX_CAUSES) break;
  }
  return list;
}

function timeout(ms) {
  const message = `no answer within ${ms} ms`;
  return { class: 'transient', reason: 'timeout', rule: 'timeout', message, code: '', causes: [] };
}

module.exports = { CANCELLED, classify, timeout };
