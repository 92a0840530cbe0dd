/** Orders repeated reads of the same resource, so that the newest response wins. */

export class Refetcher {
  private reading: Promise<void> | null = null;
  private next: Promise<void> | null = null;

  constructor(private readonly read: () => Promise<void>) {}

  /**
   * Resolve when a read that started after this call is done. Reads never overlap, since an older response could arrive last.
   * Calls during a read share the next one.
   */
  run(): Promise<void> {
    if (!this.reading) {
      this.reading = this.read().finally(() => {
        this.reading = null;
      });
      return this.reading;
    }
    this.next ??= this.reading
      .catch(() => undefined) // Reported to the caller of that read.
      .then(() => {
        this.next = null;
        return this.run();
      });
    return this.next;
  }
}

/** Tells whether a response is older than a change. */
export class Revision {
  private number = 0;

  change(): void {
    this.number += 1;
  }

  /** Return a function that tells whether nothing has changed since this call. */
  mark(): () => boolean {
    const { number } = this;
    return () => number === this.number;
  }
}

/** Return `read`, with calls during a read sharing it. */
export function shared<A = void>(read: (argument: A) => Promise<void>): (argument: A) => Promise<void> {
  let reading: Promise<void> | null = null;
  return (argument) =>
    (reading ??= read(argument).finally(() => {
      reading = null;
    }));
}
