/** A message: text, bytes, or an object that is sent as JSON. */
export type Data = string | Uint8Array | object;
export type Parameters = Record<string, string | number | boolean | (string | number)[] | undefined>;

/** A request failed. */
export class MillraceError extends Error {
  /** Status of the reply; 0: there was none. */
  readonly status: number;
  /** As in the protocol's tables of errors; "not-sent" and "no-reply" if there was no reply. */
  readonly code: string;
  readonly detail: string;
  readonly hint: string;
  /** All members of the reply. */
  readonly members: Record<string, unknown>;
  /** True if the same request may succeed later. */
  get isTemporary(): boolean;
}

/**
 * Puts messages on a queue. With a name, put() repeats a request until it has a reply, and the queue stores the messages
 * once. Give each process a name of its own, and the same name at each start. Without a name, a request is repeated only
 * if the queue cannot have stored it.
 */
export class Producer {
  constructor(options?: { name?: string; queue?: string; url?: string; token?: string; timeout?: number; patience?: number });
  /** Up to where the queue has stored this producer's messages: their number, or the latest `next`. */
  mark(): Promise<bigint>;
  /**
   * Stores all messages or none. `next`: the mark after these messages, such as an offset in their source (default: mark +
   * their number). At the next start, continue in the source at mark().
   */
  put(messages: Data | Data[], options?: { next?: bigint | number }): Promise<void>;
}

export interface Message {
  id: string;
  /** Deliveries, this one included. */
  tries: number;
  data: Uint8Array;
  text(): string;
  json(): any;
}

export interface Lease {
  /** Empty: no messages. */
  number: string;
  messages: Message[];
}

/** Leases messages of a queue. With `reader`, only this name may lease messages; without, all readers share the queue. Times are ms. */
export class Queue {
  constructor(options?: { queue?: string; url?: string; reader?: string; token?: string; timeout?: number });
  reserve(options?: { items?: number; lease?: number; wait?: number }): Promise<Lease>;
  /** Deletes messages. */
  ack(lease: Lease, ids: string[]): Promise<void>;
  /** Returns messages to the queue; with a delay, at its end and later. */
  nack(lease: Lease, ids: string[], delay?: number): Promise<void>;
  /** Sets messages aside, until somebody kicks them. */
  bury(lease: Lease, ids: string[], reason?: string): Promise<void>;
  /** Lets the lease end `extend` ms from now. */
  touch(lease: Lease, extend: number): Promise<unknown>;
  /** Ends the leases of this reader's former runs. */
  release(): Promise<void>;
  /**
   * Calls work(message) for each message until the signal aborts. Each message is delivered at least once. If work resolves,
   * the message is acknowledged. If it rejects, the message is delivered again after `delay`, and buried after `tries`
   * deliveries. The lease is extended between messages; one call of work must take less than `lease`.
   */
  consume(work: (message: Message) => unknown, options?: {
    items?: number; lease?: number; wait?: number; tries?: number; delay?: number; signal?: AbortSignal; onError?: (error: Error) => void;
  }): Promise<void>;
}

export interface Line {
  data: string;
  /** After this line; store it together with the effect of the line. */
  cursor: string;
  /** Bytes of the stream are missing here; `data` is empty. */
  gap?: { before: string; after: string };
  json(): any;
}

/**
 * The lines of a stream, until the signal aborts. After a failure it continues behind the last line, without loss or
 * repetition, likewise if nothing arrives for `timeout` ms (pubsub sends something every 15 s). Without a cursor the lines begin at `start`: "earliest", "latest", an offset or "@UNIXTIME".
 */
export function follow(stream: string, options?: {
  url?: string; cursor?: string; start?: string; token?: string; timeout?: number; signal?: AbortSignal; onError?: (error: MillraceError) => void;
}): AsyncGenerator<Line, void, void>;

/** Counts. Parameters are those of the API's guide; an array repeats a parameter. */
export class Api {
  constructor(options?: { url?: string; token?: string; timeout?: number });
  get(what: string, parameters?: Parameters): Promise<any>;
  series(parameters: Parameters): Promise<any>;
  breakdown(parameters: Parameters): Promise<any>;
  compare(parameters: Parameters): Promise<any>;
  top(counter: string, parameters?: Parameters): Promise<any>;
  quantile(parameters: Parameters): Promise<any>;
  freshness(): Promise<any>;
  /** All keys that begin with `prefix`. */
  lookup(prefix?: string, parameters?: Parameters): AsyncGenerator<{ key: string; ns: string; label: string; n: number }, void, void>;
}
