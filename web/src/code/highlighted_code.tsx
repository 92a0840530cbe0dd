/** Code with syntax highlighting. While it grows, the highlighted part stays and the rest is plain until it is done. */

import { memo, useEffect, useRef, useState } from 'react';
import { Highlighter, MAX_CHARACTERS, type Run } from './highlighter';
import './code.css';

const highlighter = new Highlighter(() => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' }));

interface HighlightResult {
  language: string;
  code: string;
  runs: Run[] | null;
}

export const HighlightedCode = memo(function HighlightedCode({ language, code }: { language: string; code: string }) {
  const [found, setFound] = useState<HighlightResult | null>(null);
  const pending = useRef(false);
  const known = highlighter.known(language, code);
  const needed = language !== '' && known === undefined && code.length <= MAX_CHARACTERS && found?.code !== code;

  useEffect(() => {
    // One request at a time: for a growing text, request the newest state when the last answer has arrived.
    if (!needed || pending.current) return;
    pending.current = true;
    const cancel = highlighter.ask(language, code, (runs) => {
      pending.current = false;
      setFound({ language, code, runs });
    });
    return () => {
      if (pending.current) cancel();
      pending.current = false;
    };
  }, [needed, found]);

  if (known) return <Runs runs={known} />;
  const fits = found?.runs && found.language === language && code.startsWith(found.code);
  if (!fits) return <>{code}</>;
  return (
    <>
      <Runs runs={found.runs!} />
      {code.slice(found.code.length)}
    </>
  );
});

const Runs = memo(function Runs({ runs }: { runs: Run[] }) {
  return (
    <>
      {runs.map(([text, kind], index) =>
        kind === null ? (
          text
        ) : (
          <span key={index} className={`clew-code-${kind}`}>
            {text}
          </span>
        ),
      )}
    </>
  );
});
