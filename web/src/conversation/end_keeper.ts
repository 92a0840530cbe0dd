/** Keeps a reader who is at the end there while it grows, leaves one who left alone, and holds still what is opened. */

/** So near counts as being at the end. */
const NEAR = 48;
/** How long after a key, a wheel or a finger a move is taken as the reader's own. */
const INTENT_MS = 400;
/** How long what was opened may take to be there. */
const OPENING_MS = 1500;

const INTENTS = ['wheel', 'touchmove', 'keydown', 'pointerdown'] as const;

export class EndKeeper {
  private top: number;
  private height: number;
  private intent = -INTENT_MS;
  /** The page took the reader elsewhere: its own moves, near the end of what is not all measured, do not bring them back. */
  private taken = false;
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
      this.hold();
      if (!this.end.get()) this.end.away(!this.isNear());
    });
    this.sizes.observe(element);
    this.sizes.observe(content);
    element.addEventListener('scroll', this.look, { passive: true });
    element.addEventListener('click', this.onClick, true);
    for (const kind of INTENTS) element.addEventListener(kind, this.onIntent, { passive: true });
  }

  stop(): void {
    clearTimeout(this.opening);
    this.sizes.disconnect();
    this.element.removeEventListener('scroll', this.look);
    this.element.removeEventListener('click', this.onClick, true);
    for (const kind of INTENTS) this.element.removeEventListener(kind, this.onIntent);
  }

  /** To the end, if that is where the reader is. The event of a move comes later than the move: look first. */
  pin(): void {
    this.look();
    if (!this.end.get()) return;
    this.element.scrollTop = this.element.scrollHeight;
    this.note();
  }

  /** Away from the end, until the reader does something. */
  leave(): void {
    this.taken = true;
    this.end.put(false);
  }

  private isNear(): boolean {
    return this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight <= NEAR;
  }

  private note(): void {
    this.top = this.element.scrollTop;
    this.height = this.element.scrollHeight;
  }

  private readonly look = (): void => {
    const moved = this.element.scrollTop - this.top;
    const shrunk = Math.max(0, this.height - this.element.scrollHeight);
    this.note();
    if (this.isNear()) {
      if (moved > 0 && !this.taken) this.end.put(true);
      return;
    }
    // Going up is leaving, unless what is above only turned out to be smaller than it was thought to be.
    if (moved < -1 - shrunk || (moved < -1 && performance.now() - this.intent < INTENT_MS)) this.end.put(false);
    if (!this.end.get()) this.end.away(true);
  };

  private readonly onIntent = (): void => {
    this.intent = performance.now();
    this.pressed = null;
    this.taken = false;
  };

  /** What a reader opens grows below the line they pressed: that line stays where it is. */
  private readonly onClick = (event: Event): void => {
    const button = (event.target as Element).closest('[aria-expanded]');
    if (!button) return;
    this.pressed = { button, top: button.getBoundingClientRect().top };
    const stayed = this.end.get();
    if (stayed) this.end.put(false);
    clearTimeout(this.opening);
    this.opening = setTimeout(() => {
      this.pressed = null;
      if (stayed) this.end.put(this.isNear());
    }, OPENING_MS);
  };

  private hold(): void {
    // Whoever has gone to the end since wants to be there.
    if (this.end.get()) this.pressed = null;
    if (!this.pressed?.button.isConnected) return;
    const moved = this.pressed.button.getBoundingClientRect().top - this.pressed.top;
    if (Math.abs(moved) <= 1) return;
    this.element.scrollTop += moved;
    this.note();
  }
}
