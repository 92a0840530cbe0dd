/** The snippet of a search hit, cut into what was found and what stands around it. */

export interface Piece {
  text: string;
  found: boolean;
}

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g;

/**
 * The server puts two asterisks around what matched; the text may have asterisks of its own. So a piece counts as
 * found when it is one of the words that were asked for, and the asterisks are left out in any case. Only when no
 * piece is such a word (the index folds letters in its own way) are the asterisks believed.
 */
export function pieces(snippet: string, query: string): Piece[] {
  const asked = words(query);
  const last = asked.at(-1) ?? '';
  const cut = snippet.replace(UNSEEN, ' ').split('**');
  const isAsked = (text: string) => {
    const plain = fold(text);
    return plain !== '' && (asked.includes(plain) || (last !== '' && plain.startsWith(last) && !/\s/.test(plain)));
  };
  const known = cut.some((text, index) => index > 0 && index < cut.length - 1 && isAsked(text));
  const marked = cut.map((text, index) => {
    const inside = index > 0 && index < cut.length - 1;
    return { text, found: inside && (known ? isAsked(text) : index % 2 === 1) };
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

/** Words, and phrases in double quotes, as the server reads a query. */
function words(query: string): string[] {
  return [...query.matchAll(/"([^"]*)"|([^\s"]+)/g)].map(([, phrase, word]) => fold(phrase ?? word ?? '')).filter(Boolean);
}

function fold(text: string): string {
  return text
    .normalize('NFKD')
    .replace(/\p{M}+/gu, '')
    .toLowerCase()
    .replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, '')
    .trim();
}
