/**
 * One event stream for all windows of this browser. A browser has about six connections to a server: were each window to
 * keep one for events, the seventh could not even load. The window that holds the lock reads and tells the others; when
 * it goes, the next one does.
 */

import type { Client } from './client';
import { EventFeed, type HostEvent } from './events';

const NAME = 'clew-events';

type Told =
  | { kind: 'event'; event: HostEvent }
  | { kind: 'online'; online: boolean }
  /** A window is new here, and what it is told: whether there is a connection. */
  | { kind: 'asked' }
  | { kind: 'here'; online: boolean }
  | { kind: 'hurry' };

export interface FeedListener {
  event: (event: HostEvent) => void;
  /** True at each new connection: what happened before it may have been missed. */
  online: (online: boolean) => void;
}

export class SharedFeed {
  private readonly channel: BroadcastChannel | null;
  private readonly ending = new AbortController();
  private feed: EventFeed | null = null;
  private online: boolean | null = null;
  private release: () => void = () => undefined;

  constructor(
    private readonly client: Client,
    private readonly on: FeedListener,
  ) {
    // Without locks, on an address that is not trusted, each window listens for itself.
    this.channel = 'locks' in navigator && 'BroadcastChannel' in window ? new BroadcastChannel(NAME) : null;
  }

  start(): void {
    if (!this.channel) {
      this.lead();
      return;
    }
    this.channel.onmessage = (message: MessageEvent<Told>) => this.hear(message.data);
    this.channel.postMessage({ kind: 'asked' } satisfies Told);
    navigator.locks
      .request(NAME, { signal: this.ending.signal }, () => {
        this.lead();
        return new Promise<void>((resolve) => {
          this.release = resolve;
        });
      })
      .catch(() => undefined); // Ended while it waited for its turn.
  }

  stop(): void {
    this.ending.abort();
    this.feed?.stop();
    this.release();
    this.channel?.close();
  }

  /** Try again at once. */
  readonly hurry = (): void => {
    if (this.feed) this.feed.hurry();
    else this.channel?.postMessage({ kind: 'hurry' } satisfies Told);
  };

  private lead(): void {
    this.feed = new EventFeed(this.client, {
      event: (event) => {
        this.channel?.postMessage({ kind: 'event', event } satisfies Told);
        this.on.event(event);
      },
      online: (online) => {
        this.channel?.postMessage({ kind: 'online', online } satisfies Told);
        this.turn(online);
      },
    });
    this.feed.start();
  }

  private hear(told: Told): void {
    if (told.kind === 'asked') {
      if (this.feed && this.online !== null) this.channel?.postMessage({ kind: 'here', online: this.online } satisfies Told);
    } else if (told.kind === 'hurry') {
      this.feed?.hurry();
    } else if (told.kind === 'online') {
      this.turn(told.online);
    } else if (told.kind === 'here') {
      if (this.online === null) this.turn(told.online);
    } else {
      this.on.event(told.event);
    }
  }

  private turn(online: boolean): void {
    this.online = online;
    this.on.online(online);
  }
}
