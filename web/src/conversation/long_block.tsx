/**
 * A paragraph that does not end. While it grows, all of it would be read again for each word: it is read piece by piece,
 * and a piece that is complete stays as it is.
 */

import { Fragment, type ReactNode, useMemo } from 'react';
import { Block, type BlockProps, type Components } from 'streamdown';

/** So many characters are read at once, or a few more. */
const PIECE = 2000;

/** What is marked between two spaces and closed; what is left of a text without it opens nothing. */
const CLOSED = /`[^`]+`|\*\*[^\s*`[\]_](?:[^*`[\]_]*[^\s*`[\]_])?\*\*|\[[^[\]`*_]*\]\([^()\s]*\)|(?<=[\p{L}\p{N}])_+(?=[\p{L}\p{N}])/gu;
const OPENS = /[`*_~[\]<>$|]/;

/** Only what begins with a letter and has no second line is a paragraph for sure, whichever piece of it is read. */
function isParagraph(text: string): boolean {
  return text.length > PIECE && /^\p{L}/u.test(text) && !text.trimEnd().includes('\n');
}

/** Cut between two words, where nothing that was opened before is still open. */
export function piecesOf(text: string): string[] {
  const pieces: string[] = [];
  let start = 0;
  for (let end = text.indexOf(' ', PIECE); end >= 0; end = text.indexOf(' ', end + PIECE)) {
    const piece = text.slice(start, end);
    if (!/^\p{L}/u.test(text.slice(end + 1, end + 3)) || OPENS.test(piece.replace(CLOSED, ''))) continue;
    pieces.push(piece);
    start = end + 1;
  }
  return [...pieces, text.slice(start)];
}

const Bare = ({ children }: { children?: ReactNode }) => <>{children}</>;

export function LongBlock(props: BlockProps) {
  const { content, components } = props;
  const inline = useMemo(() => ({ ...components, p: Bare }) as Components, [components]);
  if (!isParagraph(content)) return <Block {...props} />;
  const Paragraph = components?.p as 'p';
  return (
    <Paragraph>
      {piecesOf(content).map((piece, at) => (
        <Fragment key={at}>
          {at > 0 && ' '}
          <Block {...props} content={piece} components={inline} />
        </Fragment>
      ))}
    </Paragraph>
  );
}
