const minDelayMs = 100;
const maxDelayMs = 5_000;

/** Waits before each attempt to reconnect. The waits grow while attempts make no progress. */
export class Pace {
  #delay = minDelayMs;
  #began = 0;

  /** Notes that a connection begins. */
  begin(): void {
    this.#began = performance.now();
  }

  /** Waits after the end of a connection. further says that the connection made progress. */
  async pause(further: boolean, signal: AbortSignal | undefined, onWait: (waitMs: number) => void): Promise<void> {
    // Receiving something is not enough: a connection that always ends at the same place receives something too.
    if (further || performance.now() - this.#began > maxDelayMs) {
      this.#delay = minDelayMs;
    }
    // Half of the wait is random, so that the clients of a restarted server do not all connect at once.
    const wait = this.#delay / 2 + (Math.random() * this.#delay) / 2;
    this.#delay = Math.min(2 * this.#delay, maxDelayMs);
    onWait(wait);
    await sleep(wait, signal);
  }
}

/** A timer that aborts its signal unless it is stopped in time. */
export class Watch {
  readonly #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly ms: number) {}

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  start(): void {
    this.#timer = setTimeout(() => this.#controller.abort(new Error(`the server said nothing for ${this.ms} ms`)), this.ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Stops the timer and ends the connection. Leaving a loop over a connection's messages does not end it, so a program could not exit. */
  close(): void {
    this.stop();
    this.#controller.abort(new Error("the loop was left"));
  }
}

/** Waits for a time, or until the signal is aborted. */
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
}
