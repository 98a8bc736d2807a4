import { BatchHandler, Config, Handler } from './index';

/** A record to try a handler on; what is left out has an ordinary value. */
export interface TestRecord {
  id?: string;
  topic?: string;
  partition?: number;
  offset?: number;
  key?: string | Uint8Array | null;
  value?: string | Uint8Array | null;
  headers?: { key: string | Uint8Array; value?: string | Uint8Array | null }[];
  time?: Date | number | null;
  attempt?: number;
  maxAttempts?: number;
  stage?: string;
  /** What kconsume gives where it traces: see Message. */
  trace?: string;
  traceState?: string;
}

/** What a handler answered. For a plain acknowledgement there are only class and emitted. */
export interface Answer {
  /** none: it was cancelled or handed back. */
  class: 'none' | 'ack' | 'transient' | 'permanent' | 'drop';
  reason?: string;
  code?: string;
  message?: string;
  /** Seconds; 0 = no wish. */
  retryAfter?: number;
  causes?: string[];
  stack?: string;
  rule?: string;
  /** The call went on past its deadline. */
  late?: boolean;
  emitted: { topic: string; key: Buffer | null; value: Buffer | null; headers: { key: string; value: Buffer | null }[] }[];
}

export interface Options {
  name?: string;
  classifiers?: Config['classifiers'];
  /** Calls that may run at once; default 64. */
  concurrency?: number;
  /** The deadline of a call in seconds; default none. */
  timeout?: number;
}

/**
 * Runs a handler on records, over a real connection, and returns its answers in
 * the records' order.
 */
export function run(handler: Handler, records: TestRecord[], options?: Options): Promise<Answer[]>;
export function run(handler: BatchHandler, records: TestRecord[], options: Options & {
  /** The most messages of a batch. */
  batch: number;
}): Promise<Answer[]>;
