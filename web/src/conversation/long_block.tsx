/**
 * A very long paragraph. Parsing all of it again for each streamed word would be slow: it is split into pieces, and complete
 * pieces are not parsed again.
 */

import { Fragment, type ReactNode, useMemo } from 'react';
import { Block, type BlockProps, type Components } from 'streamdown';

/** Minimum characters of a piece. */
const PIECE_CHARS = 2000;

/** Closed inline markup; a text without it has no open markup if `OPENS` does not match. */
const CLOSED = /`[^`]+`|\*\*[^\s*`[\]_](?:[^*`[\]_]*[^\s*`[\]_])?\*\*|\[[^[\]`*_]*\]\([^()\s]*\)|(?<=[\p{L}\p{N}])_+(?=[\p{L}\p{N}])/gu;
const OPENS = /[`*_~[\]<>$|]/;

/** Whether a text is surely a paragraph: it begins with a letter and has one line. */
function isParagraph(text: string): boolean {
  return text.length > PIECE_CHARS && /^\p{L}/u.test(text) && !text.trimEnd().includes('\n');
}

/** Split between words, outside of inline markup. */
export function piecesOf(text: string): string[] {
  const pieces: string[] = [];
  let start = 0;
  for (let end = text.indexOf(' ', PIECE_CHARS); end >= 0; end = text.indexOf(' ', end + PIECE_CHARS)) {
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
