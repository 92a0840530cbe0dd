/** The highlighting worker. It receives text and returns runs of text. */

import { common, createLowlight } from 'lowlight';
import type { Answer, Ask, Run } from './highlighter';

const lowlight = createLowlight(common);
type Node = { type: string; value?: string; properties?: { className?: string[] }; children?: Node[] };

function runsOf(node: Node, kind: string | null, runs: Run[]): Run[] {
  if (node.type === 'text') {
    const last = runs[runs.length - 1];
    if (last && last[1] === kind) runs[runs.length - 1] = [last[0] + (node.value ?? ''), kind];
    else runs.push([node.value ?? '', kind]);
  }
  const own = node.properties?.className?.[0]?.replace(/^hljs-/, '') ?? kind;
  for (const child of node.children ?? []) runsOf(child, own, runs);
  return runs;
}

self.onmessage = (event: MessageEvent<Ask>) => {
  const { id, language, code } = event.data;
  const runs = lowlight.registered(language) ? runsOf(lowlight.highlight(language, code) as Node, null, []) : null;
  (self as unknown as { postMessage: (answer: Answer) => void }).postMessage({ id, runs });
};
