/** Reading the same thing again and again: the newest answer is the last one that counts. */

export class Rereading {
  private reading: Promise<void> | null = null;
  private next: Promise<void> | null = null;

  constructor(private readonly read: () => Promise<void>) {}

  /**
   * Resolves when a reading that began after the call is done. Never two at once: an older answer could come last. All who
   * ask while one is on its way share the one after it.
   */
  again(): Promise<void> {
    if (!this.reading) {
      this.reading = this.read().finally(() => {
        this.reading = null;
      });
      return this.reading;
    }
    this.next ??= this.reading
      .catch(() => undefined) // Whoever asked for that one is told.
      .then(() => {
        this.next = null;
        return this.again();
      });
    return this.next;
  }
}
