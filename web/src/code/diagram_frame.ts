/**
 * Where diagrams are drawn: a frame of an origin of its own, which can reach neither this page nor the server. It gets
 * the text of a diagram and gives a picture back, and a picture is all that is ever shown of it.
 */

export interface DiagramAsk {
  id: number;
  code: string;
  dark: boolean;
}

export interface DiagramAnswer {
  id: number;
  /** Null where the text is no diagram. */
  svg: string | null;
}

const LONGEST_WAIT_MS = 8_000;

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
    if (this.queue.length === 1) this.goOn();
    return () => {
      waiting.answer = () => undefined;
    };
  }

  private goOn() {
    clearTimeout(this.timer);
    const [first] = this.queue;
    if (!first) return;
    this.timer = setTimeout(() => this.giveUp(), LONGEST_WAIT_MS);
    if (!this.frame) this.open();
    else if (this.ready) this.frame.contentWindow?.postMessage(first.ask, '*');
  }

  private open() {
    window.addEventListener('message', this.heard);
    const frame = document.createElement('iframe');
    frame.src = new URL('./assets/diagram.html', document.baseURI).href;
    frame.setAttribute('sandbox', 'allow-scripts');
    frame.setAttribute('aria-hidden', 'true');
    frame.tabIndex = -1;
    frame.title = 'Diagrams';
    // Letters are measured in it, so it is laid out, outside of what is seen.
    frame.className = 'clew-diagrams';
    document.body.append(frame);
    this.frame = frame;
  }

  private readonly heard = (event: MessageEvent<DiagramAnswer | 'ready'>) => {
    if (!this.frame || event.source !== this.frame.contentWindow) return;
    if (event.data === 'ready') {
      this.ready = true;
      this.goOn();
    } else if (event.data.id === this.queue[0]?.ask.id) {
      const svg = typeof event.data.svg === 'string' ? event.data.svg : null;
      this.queue.shift()!.answer(svg);
      this.goOn();
    }
  };

  /** A diagram that takes too long stays text; the next one gets a new frame. */
  private giveUp() {
    window.removeEventListener('message', this.heard);
    this.frame?.remove();
    this.frame = null;
    this.ready = false;
    this.queue.shift()?.answer(null);
    this.goOn();
  }
}

export const diagrams = new DiagramFrame();
