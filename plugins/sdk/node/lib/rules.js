'use strict';

const MAX_TREE = 256;

/** err and all that caused it, outermost first, depth first. */
function* tree(err, seen = new Set()) {
  if (err === undefined || err === null || seen.size === MAX_TREE || seen.has(err)) return;
  seen.add(err);
  yield err;
  yield* tree(err.cause, seen);
  if (Array.isArray(err.errors)) for (const e of err.errors) yield* tree(e, seen);
}

/** The outermost error in err that fits. */
function find(err, fits) {
  for (const e of tree(err)) if (fits(e)) return e;
  return undefined;
}

const TRANSIENT = Object.freeze({ class: 'transient' });
const PERMANENT = Object.freeze({ class: 'permanent' });
const POISON = Object.freeze({ class: 'permanent', reason: 'poison' });

/** The rules in their order: a name, and what the rule says or undefined. */
const builtin = [
  ['temporary', err => find(err, isTemporary) && { class: 'transient', retryAfter: wish(err) }],
  ['retry-after', err => wish(err) && { class: 'transient', retryAfter: wish(err) }],
  ['deadline', err => find(err, e => e.name === 'TimeoutError') && TRANSIENT],
  ['canceled', err => find(err, isAbort) && TRANSIENT],
  ['sqlstate', sqlState],
  ['status', httpStatus],
  ['grpc', rpcStatus],
  ['network', err => find(err, e => NETWORK.has(e.code)) && TRANSIENT],
  ['eof', err => find(err, e => EOF.has(e.code)) && TRANSIENT],
  ['json', err => find(err, e => e instanceof SyntaxError) && POISON],
];

/** How many seconds err asks to wait, in a property of its own. */
function wish(err) {
  return find(err, e => typeof e.retryAfter === 'number' && e.retryAfter > 0)?.retryAfter;
}

const isTemporary = e => e.temporary === true || e.retryable === true || Boolean(e.$retryable);

const isAbort = e => e.name === 'AbortError' || e.name === 'CanceledError' || e.code === 'ABORT_ERR';

/**
 * The SQLSTATE of an error of a database driver: mysql2 has sqlState; pg and
 * postgres have it in code, where only the severity beside it tells it from a
 * code like EPIPE.
 */
function sqlStateOf(e) {
  const state = e.sqlState ?? (typeof e.severity === 'string' ? e.code : undefined);
  return typeof state === 'string' && /^[0-9A-Z]{5}$/.test(state) ? state : undefined;
}

function sqlState(err) {
  const e = find(err, sqlStateOf);
  const state = e && sqlStateOf(e);
  switch (state?.slice(0, 2)) {
    case '08': case '40': case '53': return TRANSIENT; // connection, serialization and deadlock, resources
    case '22': case '23': case '42': return PERMANENT; // data, constraint, syntax and access
  }
  return state?.startsWith('57P') ? TRANSIENT : undefined; // the server is stopped or starting
}

/** The HTTP status where axios, got, ky, undici and the AWS SDK have it; 0 = no answer. */
function statusOf(e) {
  return [e.statusCode, e.status, e.response?.status, e.response?.statusCode, e.$metadata?.httpStatusCode]
    .find(n => Number.isInteger(n) && (n === 0 || n >= 100 && n <= 599));
}

function httpStatus(err) {
  const e = find(err, x => statusOf(x) !== undefined);
  const n = e && statusOf(e);
  if (n === 0 || n === 408 || n === 425 || n === 429 || n >= 500) return { class: 'transient', retryAfter: retryAfterHeader(e) };
  return n >= 400 ? PERMANENT : undefined;
}

/** What a response asks for, in seconds: a number of them, or a date. */
function retryAfterHeader(e) {
  const headers = e.response?.headers;
  const text = headers?.get?.('retry-after') ?? headers?.['retry-after'];
  const seconds = text === undefined ? NaN : Number.isNaN(Number(text)) ? (Date.parse(text) - Date.now()) / 1000 : Number(text);
  return seconds > 0 ? seconds : undefined;
}

const GRPC = ['OK', 'Canceled', 'Unknown', 'InvalidArgument', 'DeadlineExceeded', 'NotFound', 'AlreadyExists', 'PermissionDenied',
  'ResourceExhausted', 'FailedPrecondition', 'Aborted', 'OutOfRange', 'Unimplemented', 'Internal', 'Unavailable', 'DataLoss', 'Unauthenticated'];
const GRPC_TRANSIENT = new Set(['Canceled', 'DeadlineExceeded', 'ResourceExhausted', 'Aborted', 'Internal', 'Unavailable']);
const GRPC_SILENT = new Set(['OK', 'Unknown']); // tell nothing

const grpcOf = e => typeof e.details === 'string' && Number.isInteger(e.code) ? GRPC[e.code] : undefined;

function rpcStatus(err) {
  const e = find(err, grpcOf);
  if (!e) return undefined;
  const retryAfter = retryInfo(e.metadata?.get?.('grpc-status-details-bin')?.[0]);
  if (retryAfter !== undefined) return { class: 'transient', retryAfter };
  const code = grpcOf(e);
  if (GRPC_SILENT.has(code)) return undefined;
  return GRPC_TRANSIENT.has(code) ? TRANSIENT : PERMANENT;
}

const NETWORK = new Set(['ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN',
  'ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL', 'ESERVFAIL', 'ETIMEOUT', 'ERR_NETWORK', 'ERR_SOCKET_CONNECTION_TIMEOUT',
  'UND_ERR_SOCKET', 'UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT']);
const EOF = new Set(['ERR_STREAM_PREMATURE_CLOSE', 'HPE_INVALID_EOF_STATE']);

// The codes of system calls are in the errors' texts, and the rule says as much.
const isCoded = e => typeof e.code === 'string' && e.syscall === undefined;

/**
 * The machine-readable word that err has, whatever rule fires. Statuses come
 * before words like ERR_BAD_RESPONSE, which say less.
 */
function codeOf(err) {
  const state = find(err, sqlStateOf);
  if (state) return sqlStateOf(state);
  const status = find(err, e => statusOf(e) !== undefined);
  if (status) return String(statusOf(status));
  const rpc = find(err, grpcOf);
  if (rpc) return grpcOf(rpc);
  return find(err, isCoded)?.code ?? '';
}

/** What a bug throws rather than the world. fetch throws a TypeError for both: rules on its cause come first. */
const isPanic = err => err instanceof TypeError || err instanceof ReferenceError || err instanceof RangeError || err?.code === 'ERR_ASSERTION';

/** The delay in seconds of a google.rpc.RetryInfo in the bytes of a google.rpc.Status. */
function retryInfo(bytes) {
  if (!Buffer.isBuffer(bytes)) return undefined;
  try {
    for (const [field, detail] of fields(bytes)) {
      const any = field === 3 ? new Map(fields(detail)) : undefined;
      if (any?.get(1)?.toString() !== 'type.googleapis.com/google.rpc.RetryInfo') continue;
      const delay = new Map(fields(new Map(fields(any.get(2) ?? Buffer.alloc(0))).get(1) ?? Buffer.alloc(0)));
      return Number(delay.get(1) ?? 0) + Number(delay.get(2) ?? 0) / 1e9;
    }
  } catch { // not what it should be: then it says nothing
  }
  return undefined;
}

/** The varint and bytes fields of a protobuf message; others end it. */
function* fields(bytes) {
  let at = 0;
  const varint = () => {
    let n = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const b = bytes.readUInt8(at++);
      n |= BigInt(b & 0x7f) << shift;
      if (b < 0x80) return n;
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    if ((tag & 7) === 0) yield [tag >> 3, varint()];
    else if ((tag & 7) !== 2) return;
    else {
      const n = Number(varint());
      yield [tag >> 3, bytes.subarray(at, at += n)];
    }
  }
}

module.exports = { builtin, codeOf, find, isAbort, isPanic, tree, wish };
