import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { expect, test } from 'vitest';
import { piecesOf } from './long_block';
import { Markdown } from './markdown';

(globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
// Highlighting is asynchronous; the text is the same.
globalThis.Worker = class {
  postMessage(): void {}
  terminate(): void {}
} as unknown as typeof Worker;

/** Markdown pieces whose meaning depends on their neighbours. */
const PIECES = ['H~2~O', '~~gone~~', '~', '**bold**', '**', '*', '_a_', '_', '`code`', '`', '```js\n', '\n```\n', '$5', '$$x^2$$', '$$', '[a](https://e.org)', '[', '](', '![p](x.png)', '<b>', '</b>', '&amp;', '\\', '\n', '\n\n', '- ', '1. ', '# ', '> ', '| a | b |\n|--|:-:|\n| 1 | 2 |\n', '---\n', 'word ', 'a*b*c', 'x_y_z', '^1^', ':::', 'https://e.org ', '[^1]', '[^1]: note\n', '    four', '\t'];

/** Deterministic random numbers. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
}

function shown(steps: { text: string; streaming: boolean }[]): string {
  const host = document.createElement('div');
  const root = createRoot(host);
  for (const { text, streaming } of steps) act(() => root.render(<Markdown text={text} streaming={streaming} />));
  const html = host.innerHTML;
  act(() => root.unmount());
  return html;
}

test('a streamed text renders like a reloaded one', () => {
  const random = randomFrom(7);
  const texts = ['H~2~O', 'a ~b~ c ~~d~~', ...Array.from({ length: 24 }, () => Array.from({ length: 1 + Math.floor(random() * 9) }, () => PIECES[Math.floor(random() * PIECES.length)]!).join(''))];
  for (const text of texts) {
    const cuts = [0.3, 0.6, 1].map((share) => ({ text: text.slice(0, Math.ceil(text.length * share)), streaming: true }));
    expect(shown([...cuts, { text, streaming: false }]), JSON.stringify(text)).toBe(shown([{ text, streaming: false }]));
  }
}, 30_000);

test('a very long paragraph renders the same in pieces', () => {
  const random = randomFrom(11);
  const marked = ['**so it is**', '`a * b`', 'snake_case_name', '[there](https://e.org/x_y)', 'https://e.org', '&amp;', 'it’s', '5 > 3', 'a*b', '~~gone~~', '*so*', '$$x$$', '\\*', '<b>', '[^1]', '__x__', 'H~2~O', '1.', '- a', '|'];
  const prose = (count: number, share: number) => Array.from({ length: count }, () => (random() < share ? marked[Math.floor(random() * marked.length)]! : 'word')).join(' ');
  const texts = [`Begin ${prose(3000, 0)}`, ...Array.from({ length: 12 }, (_, n) => `Begin ${prose(2500, n < 6 ? 0.003 : 0.05)}`), `Begin ${prose(1000, 0)}\nsecond ${prose(1000, 0)}`, `1. ${prose(1000, 0)}`];
  // Only text that begins with a letter is split.
  const atOnce = (text: string) => shown([{ text: text.replace(/^B/, '&#66;'), streaming: false }]);
  for (const text of texts) expect(shown([{ text, streaming: false }]), JSON.stringify(text)).toBe(atOnce(text));
  expect(piecesOf(texts[0]!).length).toBeGreaterThan(5);
  expect(piecesOf(texts[0]!).join(' ')).toBe(texts[0]!);
}, 30_000);
