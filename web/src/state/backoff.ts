/** A retry after a failure, later each time until `reset`. */

const FIRST_MS = 1000;
const MAX_MS = 30_000;

export class Backoff {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private ms = FIRST_MS;

  schedule(act: () => void): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(act, this.ms);
    this.ms = Math.min(2 * this.ms, MAX_MS);
  }

  cancel(): void {
    clearTimeout(this.timer);
  }

  /** Begin with the shortest delay again: it worked. */
  reset(): void {
    this.ms = FIRST_MS;
  }
}
