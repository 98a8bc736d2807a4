/// <reference types="node" />

/** One header of a record. Names repeat and their order counts. */
export interface Header {
  /** The name as text; what is not UTF-8 is replaced. */
  readonly key: string;
  /** The name's bytes, as Kafka has them. */
  readonly rawKey: Buffer;
  readonly value: Buffer | null;
}

/** A record that a handler emits. Texts become UTF-8; null and undefined are Kafka's null. */
export interface EmittedRecord {
  topic: string;
  key?: string | Uint8Array | null;
  value?: string | Uint8Array | null;
  /** Where rawKey is given, it is the name: a message's headers can be passed on as they are. */
  headers?: readonly { key: string; rawKey?: Uint8Array; value?: string | Uint8Array | null }[];
}

/** What a call can ask about itself. */
export interface Call {
  /** Aborted at the deadline (TimeoutError), when kconsume cancels the delivery, or when the call has returned (AbortError). */
  readonly signal: AbortSignal;
  /** Milliseconds until the deadline; Infinity where there is none. */
  readonly timeLeft: number;
  /**
   * Aborted when kconsume asks the process to finish what it has. A call need
   * not heed it; one that takes long may stop early by throwing its AbortError,
   * which hands the record back: it is delivered again as the same attempt.
   */
  readonly draining: AbortSignal;
}

/** One delivery of one record. Its bytes must not be changed. */
export interface Message extends Call {
  /** The same on every delivery and replay: topic/partition/offset@timestamp-ms of the origin. */
  readonly id: string;
  /** Topic, partition and offset are the record's origin, also when it comes from a retry topic. */
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  /** null and empty are different things. */
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  /** The record's own, in order; kconsume's are removed. */
  readonly headers: readonly Header[];
  /** The origin record's timestamp; null where it has none. */
  readonly time: Date | null;
  /** 1 on the first delivery, at most maxAttempts. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** "main", or the retry tier it came from, such as "retry.5s". */
  readonly stage: string;
  /**
   * The W3C traceparent that spans of the handler's own continue: that of this delivery's span where kconsume
   * traces, else what the record's header says, unchecked. Empty where there is none.
   */
  readonly trace: string;
  /** The W3C tracestate that goes with trace, mostly empty. */
  readonly traceState: string;
  /** The value of the last header of this name; undefined = there is none. */
  header(name: string): Buffer | null | undefined;
  /** The value decoded from JSON. One that cannot be decoded, null included, is a poison pill: it goes to the dead letters. */
  json<T = any>(): T;
  /** Queues a record that is sent once this delivery is acknowledged, to one of the topics that --emit allows. */
  emit(record: EmittedRecord): void;
}

/** Messages that were waiting together; at least one. */
export interface Batch extends Call, Iterable<Message> {
  readonly messages: readonly Message[];
  readonly length: number;
  /** Says that messages[i] failed with err, whatever the call itself ends with. The last error counts. */
  fail(i: number, err: unknown): void;
}

export type Word = 'transient' | 'permanent' | 'drop';

/** A verdict on an error; a word is one without details. */
export interface Verdict {
  class: Word;
  /** For permanent: poison says that the bytes cannot be decoded. */
  reason?: 'poison';
  code?: string;
  message?: string;
  /** Seconds. */
  retryAfter?: number;
  rule?: string;
}

export interface Config {
  /** What --handler calls it. */
  name: string;
  version?: string;
  /** Those it is made for; for people to read. */
  topics?: string[];
  /** Tell what the handler's own errors mean, before the built-in rules; undefined = no opinion. */
  classifiers?: ((err: any) => Verdict | Word | undefined | null | false)[];
  /** Called once when kconsume has asked for the end and the last record is answered. It has 3 s. */
  close?: () => void | Promise<void>;
}

export interface BatchConfig extends Config {
  /** The most messages of a batch; default 100. */
  max?: number;
  /** Bounds the batches handled at once, where that is to be less than --concurrency. */
  concurrency?: number;
}

export type Handler = (message: Message) => unknown;
export type BatchHandler = (batch: Batch) => unknown;

/**
 * Runs the handler for the kconsume that started this process, until kconsume
 * ends it. Returning, or resolving, means that the record is done; what a throw
 * means is told by the error's type. What is printed goes to kconsume's log.
 */
export function serve(config: Config, handler: Handler): void;

/** The same for batches. What the call throws is for all messages not failed singly. */
export function serveBatch(config: BatchConfig, handler: BatchHandler): void;

export interface ErrorOptions {
  cause?: unknown;
  /** A short machine-readable word. */
  code?: string;
}

/** May pass: the record is delivered again, after the retry topics' delays. */
export class Transient extends Error {
  constructor(message: string | Error, options?: ErrorOptions & {
    /** How long to wait, in seconds. */
    retryAfter?: number;
  });
  readonly code?: string;
  readonly retryAfter?: number;
}

/** Will not pass: the record goes to the dead letters. */
export class Permanent extends Error {
  constructor(message: string | Error, options?: ErrorOptions);
  readonly code?: string;
}

/** Nothing is to be done for the record, on purpose: it is done, and counted under this reason. */
export class Drop extends Error {
  constructor(reason: string, options?: ErrorOptions);
  readonly code?: string;
}

/** For fetch, which has no error for a response that refuses: its status decides, and its Retry-After is heeded. */
export class HttpError extends Error {
  constructor(response: Response);
  readonly response: Response;
}
