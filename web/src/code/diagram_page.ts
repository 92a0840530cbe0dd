/** The script of the diagram frame. */

import mermaid from 'mermaid';
import type { DiagramAnswer, DiagramAsk } from './diagram_frame';

async function draw({ id, code, dark }: DiagramAsk): Promise<DiagramAnswer> {
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: 'strict',
    theme: dark ? 'dark' : 'neutral',
    fontFamily: 'system-ui, sans-serif',
    htmlLabels: false,
    flowchart: { htmlLabels: false },
    maxTextSize: 20_000,
    suppressErrorRendering: true,
  });
  try {
    return { id, svg: (await mermaid.render(`drawn-${id}`, code)).svg };
  } catch {
    return { id, svg: null };
  }
}

window.addEventListener('message', (event: MessageEvent<DiagramAsk>) => {
  if (event.source !== window.parent) return;
  void draw(event.data).then((answer) => window.parent.postMessage(answer, '*'));
});
window.parent.postMessage('ready', '*');
