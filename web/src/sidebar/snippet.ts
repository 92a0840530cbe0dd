/** Splits the snippet of a search result into matches and the text around them. */

export interface Piece {
  text: string;
  found: boolean;
}

const CONTROL_CHARS = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g;

/**
 * The server marks matches with two asterisks, but the text may contain asterisks itself. A marked piece counts as a match
 * only if it is one of the searched words; asterisks are removed in any case. If no piece is such a word (the index
 * normalizes letters differently), the marks are trusted.
 */
export function pieces(snippet: string, query: string): Piece[] {
  const queried = termsOf(query);
  const last = queried.at(-1) ?? '';
  const cut = snippet.replace(CONTROL_CHARS, ' ').split('**');
  const isQueried = (text: string) => {
    const plain = normalize(text);
    return plain !== '' && (queried.includes(plain) || (last !== '' && plain.startsWith(last) && !/\s/.test(plain)));
  };
  const known = cut.some((text, index) => index > 0 && index < cut.length - 1 && isQueried(text));
  const marked = cut.map((text, index) => {
    const inside = index > 0 && index < cut.length - 1;
    return { text, found: inside && (known ? isQueried(text) : index % 2 === 1) };
  });
  return joined(marked.filter((piece) => piece.text !== ''));
}

function joined(marked: Piece[]): Piece[] {
  const whole: Piece[] = [];
  for (const piece of marked) {
    const before = whole.at(-1);
    if (before && before.found === piece.found) before.text += piece.text;
    else whole.push({ ...piece });
  }
  return whole;
}

/** Return the words and quoted phrases of a query, as the server parses it. */
function termsOf(query: string): string[] {
  return [...query.matchAll(/"([^"]*)"|([^\s"]+)/g)].map(([, phrase, word]) => normalize(phrase ?? word ?? '')).filter(Boolean);
}

function normalize(text: string): string {
  return text
    .normalize('NFKD')
    .replace(/\p{M}+/gu, '')
    .toLowerCase()
    .replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, '')
    .trim();
}
