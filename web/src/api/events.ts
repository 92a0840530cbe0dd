/** The host's event stream, which reconnects when the server is back. */

import { type Client, frames, Problem } from '@clew/client';

export interface HostEvent {
  type: string;
  session_id?: string;
  [key: string]: unknown;
}

const RETRY_DELAYS_MS = [250, 500, 1000, 2000, 3000];

export class EventFeed {
  private stopped = false;
  private current: AbortController | null = null;
  private wake: () => void = () => undefined;

  constructor(
    private readonly client: Client,
    private readonly on: { event: (event: HostEvent) => void; online: (online: boolean) => void },
  ) {}

  start(): void {
    void this.loop();
    window.addEventListener('online', this.retryNow);
    document.addEventListener('visibilitychange', this.retryNow);
  }

  stop(): void {
    this.stopped = true;
    this.current?.abort();
    this.wake();
    window.removeEventListener('online', this.retryNow);
    document.removeEventListener('visibilitychange', this.retryNow);
  }

  /** Retry immediately: the machine woke up, or the user pressed the button. */
  readonly retryNow = (): void => this.wake();

  private async loop(): Promise<void> {
    let failures = 0;
    while (!this.stopped) {
      const connected = await this.listen();
      if (this.stopped) return;
      failures = connected ? 0 : failures + 1;
      this.on.online(false);
      await this.pause(RETRY_DELAYS_MS[Math.min(failures, RETRY_DELAYS_MS.length - 1)]!);
    }
  }

  /** Read the stream until it ends. Returns whether it was connected. */
  private async listen(): Promise<boolean> {
    let connected = false;
    const controller = new AbortController();
    this.current = controller;
    try {
      for await (const event of frames(this.client, 'GET /api/events', { signal: controller.signal })) {
        if (event.type === 'hello') {
          connected = true;
          this.on.online(true);
        }
        this.on.event(event);
      }
    } catch (error) {
      if (error instanceof Problem && error.status === 401) this.stopped = true;
    }
    return connected;
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
