/** A text in the colours of its language. While it grows, what is coloured stays so and the rest follows. */

import { memo, useEffect, useRef, useState } from 'react';
import { Colours, MOST_CHARACTERS, type Run } from './colours';
import './code.css';

const colours = new Colours(() => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' }));

interface Found {
  language: string;
  code: string;
  runs: Run[] | null;
}

export const Coloured = memo(function Coloured({ language, code }: { language: string; code: string }) {
  const [found, setFound] = useState<Found | null>(null);
  const asking = useRef(false);
  const known = colours.known(language, code);
  const wanted = language !== '' && known === undefined && code.length <= MOST_CHARACTERS && found?.code !== code;

  useEffect(() => {
    // One question at a time: of a text that grows, the newest state is asked for when the last answer is there.
    if (!wanted || asking.current) return;
    asking.current = true;
    const forget = colours.ask(language, code, (runs) => {
      asking.current = false;
      setFound({ language, code, runs });
    });
    return () => {
      if (asking.current) forget();
      asking.current = false;
    };
  }, [wanted, found]);

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
