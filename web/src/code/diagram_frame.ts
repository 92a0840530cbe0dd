/**
 * Draws diagrams in a sandboxed frame with an opaque origin, which can reach neither this page nor the server. It receives
 * the source of a diagram and returns an image; nothing else of it is shown.
 */

export interface DiagramAsk {
  id: number;
  code: string;
  dark: boolean;
}

export interface DiagramAnswer {
  id: number;
  /** Null if the source is not a valid diagram. */
  svg: string | null;
}

const TIMEOUT_MS = 8_000;

type Waiting = { ask: DiagramAsk; answer: (svg: string | null) => void };

class DiagramFrame {
  private frame: HTMLIFrameElement | null = null;
  private ready = false;
  private queue: Waiting[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private next = 1;

  draw(code: string, dark: boolean, answer: (svg: string | null) => void): () => void {
    const waiting = { ask: { id: this.next++, code, dark }, answer };
    this.queue.push(waiting);
    if (this.queue.length === 1) this.processNext();
    return () => {
      waiting.answer = () => undefined;
    };
  }

  private processNext() {
    clearTimeout(this.timer);
    const [first] = this.queue;
    if (!first) return;
    this.timer = setTimeout(() => this.giveUp(), TIMEOUT_MS);
    if (!this.frame) this.open();
    else if (this.ready) this.frame.contentWindow?.postMessage(first.ask, '*');
  }

  private open() {
    window.addEventListener('message', this.onMessage);
    const frame = document.createElement('iframe');
    frame.src = new URL('./assets/diagram.html', document.baseURI).href;
    frame.setAttribute('sandbox', 'allow-scripts');
    frame.setAttribute('aria-hidden', 'true');
    frame.tabIndex = -1;
    frame.title = 'Diagrams';
    // Mermaid measures text in it, so it needs a layout, off screen.
    frame.className = 'clew-diagrams';
    document.body.append(frame);
    this.frame = frame;
  }

  private readonly onMessage = (event: MessageEvent<DiagramAnswer | 'ready'>) => {
    if (!this.frame || event.source !== this.frame.contentWindow) return;
    if (event.data === 'ready') {
      this.ready = true;
      this.processNext();
    } else if (event.data.id === this.queue[0]?.ask.id) {
      const svg = typeof event.data.svg === 'string' ? event.data.svg : null;
      this.queue.shift()!.answer(svg);
      this.processNext();
    }
  };

  /** Leave a diagram as text if drawing times out, and use a new frame for the next. */
  private giveUp() {
    window.removeEventListener('message', this.onMessage);
    this.frame?.remove();
    this.frame = null;
    this.ready = false;
    this.queue.shift()?.answer(null);
    this.processNext();
  }
}

export const diagrams = new DiagramFrame();
