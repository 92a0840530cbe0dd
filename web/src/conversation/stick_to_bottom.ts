/** Keeps the thread scrolled to the bottom while it grows, unless the reader has scrolled away, and keeps opened sections in place. */

/** Distance from the end that still counts as the end, in pixels. */
const NEAR_PX = 48;
/** Time after a key, wheel or touch event in which a scroll counts as the reader's. */
const INTENT_MS = 400;
/** Time that an opened section may take to render. */
const OPENING_MS = 1500;

const INTENTS = ['wheel', 'touchmove', 'keydown', 'pointerdown'] as const;

export class StickToBottom {
  private top: number;
  private height: number;
  private intent = -INTENT_MS;
  /** The page scrolled away from the end itself. Until the reader acts, layout changes near the end do not re-attach. */
  private released = false;
  private pressed: { button: Element; top: number } | null = null;
  private opening: ReturnType<typeof setTimeout> | undefined;
  private readonly sizes: ResizeObserver;

  constructor(
    private readonly element: HTMLElement,
    content: HTMLElement,
    private readonly end: { get: () => boolean; put: (atEnd: boolean) => void; away: (away: boolean) => void },
  ) {
    this.top = element.scrollTop;
    this.height = element.scrollHeight;
    this.sizes = new ResizeObserver(() => {
      this.pin();
      this.keepPressedInPlace();
      if (!this.end.get()) this.end.away(!this.isNear());
    });
    this.sizes.observe(element);
    this.sizes.observe(content);
    element.addEventListener('scroll', this.onScroll, { passive: true });
    element.addEventListener('click', this.onClick, true);
    for (const kind of INTENTS) element.addEventListener(kind, this.onIntent, { passive: true });
  }

  stop(): void {
    clearTimeout(this.opening);
    this.sizes.disconnect();
    this.element.removeEventListener('scroll', this.onScroll);
    this.element.removeEventListener('click', this.onClick, true);
    for (const kind of INTENTS) this.element.removeEventListener(kind, this.onIntent);
  }

  /** Scroll to the end if the reader is there. Scroll events arrive late, so check the position first. */
  pin(): void {
    this.onScroll();
    if (!this.end.get()) return;
    this.element.scrollTop = this.element.scrollHeight;
    this.recordPosition();
  }

  /** Leave the end until the reader acts. */
  leave(): void {
    this.released = true;
    this.end.put(false);
  }

  private isNear(): boolean {
    return this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight <= NEAR_PX;
  }

  private recordPosition(): void {
    this.top = this.element.scrollTop;
    this.height = this.element.scrollHeight;
  }

  private readonly onScroll = (): void => {
    const moved = this.element.scrollTop - this.top;
    const shrunk = Math.max(0, this.height - this.element.scrollHeight);
    this.recordPosition();
    if (this.isNear()) {
      if (moved > 0 && !this.released) this.end.put(true);
      return;
    }
    // Scrolling up leaves the end, unless the content above was only measured smaller than estimated.
    if (moved < -1 - shrunk || (moved < -1 && performance.now() - this.intent < INTENT_MS)) this.end.put(false);
    if (!this.end.get()) this.end.away(true);
  };

  private readonly onIntent = (): void => {
    this.intent = performance.now();
    this.pressed = null;
    this.released = false;
  };

  /** Keep a pressed disclosure button in place while its content opens below it. */
  private readonly onClick = (event: Event): void => {
    const button = (event.target as Element).closest('[aria-expanded]');
    if (!button) return;
    this.pressed = { button, top: button.getBoundingClientRect().top };
    const wasAtEnd = this.end.get();
    if (wasAtEnd) this.end.put(false);
    clearTimeout(this.opening);
    this.opening = setTimeout(() => {
      this.pressed = null;
      if (wasAtEnd) this.end.put(this.isNear());
    }, OPENING_MS);
  };

  private keepPressedInPlace(): void {
    // The reader has gone to the end since.
    if (this.end.get()) this.pressed = null;
    if (!this.pressed?.button.isConnected) return;
    const moved = this.pressed.button.getBoundingClientRect().top - this.pressed.top;
    if (Math.abs(moved) <= 1) return;
    this.element.scrollTop += moved;
    this.recordPosition();
  }
}
