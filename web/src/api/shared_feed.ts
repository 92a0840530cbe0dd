/**
 * One event stream for all windows of this browser. A browser opens about six connections to a server: with one stream per
 * window, the seventh window could not even load. The window that holds the lock reads the stream and forwards it to the
 * others; when it closes, another one takes over.
 */

import type { Client } from './client';
import { EventFeed, type HostEvent } from './events';

const NAME = 'clew-events';

type FeedMessage =
  | { kind: 'event'; event: HostEvent }
  | { kind: 'online'; online: boolean }
  /** A new window asks for the connection state, and the answer. */
  | { kind: 'asked' }
  | { kind: 'here'; online: boolean }
  | { kind: 'hurry' };

export interface FeedListener {
  event: (event: HostEvent) => void;
  /** True at each new connection: earlier events may have been missed. */
  online: (online: boolean) => void;
}

export class SharedFeed {
  private readonly channel: BroadcastChannel | null;
  private readonly stopping = new AbortController();
  private feed: EventFeed | null = null;
  private online: boolean | null = null;
  private release: () => void = () => undefined;

  constructor(
    private readonly client: Client,
    private readonly on: FeedListener,
  ) {
    // Without locks, on an insecure origin, each window reads the stream itself.
    this.channel = 'locks' in navigator && 'BroadcastChannel' in window ? new BroadcastChannel(NAME) : null;
  }

  start(): void {
    if (!this.channel) {
      this.readStream();
      return;
    }
    this.channel.onmessage = (event: MessageEvent<FeedMessage>) => this.onMessage(event.data);
    this.channel.postMessage({ kind: 'asked' } satisfies FeedMessage);
    navigator.locks
      .request(NAME, { signal: this.stopping.signal }, () => {
        this.readStream();
        return new Promise<void>((resolve) => {
          this.release = resolve;
        });
      })
      .catch(() => undefined); // Stopped while waiting for the lock.
  }

  stop(): void {
    this.stopping.abort();
    this.feed?.stop();
    this.release();
    this.channel?.close();
  }

  /** Retry immediately. */
  readonly retryNow = (): void => {
    if (this.feed) this.feed.retryNow();
    else this.channel?.postMessage({ kind: 'hurry' } satisfies FeedMessage);
  };

  private readStream(): void {
    this.feed = new EventFeed(this.client, {
      event: (event) => {
        this.channel?.postMessage({ kind: 'event', event } satisfies FeedMessage);
        this.on.event(event);
      },
      online: (online) => {
        this.channel?.postMessage({ kind: 'online', online } satisfies FeedMessage);
        this.setOnline(online);
      },
    });
    this.feed.start();
  }

  private onMessage(message: FeedMessage): void {
    if (message.kind === 'asked') {
      if (this.feed && this.online !== null) this.channel?.postMessage({ kind: 'here', online: this.online } satisfies FeedMessage);
    } else if (message.kind === 'hurry') {
      this.feed?.retryNow();
    } else if (message.kind === 'online') {
      this.setOnline(message.online);
    } else if (message.kind === 'here') {
      if (this.online === null) this.setOnline(message.online);
    } else {
      this.on.event(message.event);
    }
  }

  private setOnline(online: boolean): void {
    this.online = online;
    this.on.online(online);
  }
}
