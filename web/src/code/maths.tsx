/** A formula. What sets it comes when the first one is met; until then, and where it cannot be read, it stands as text. */

import { lazy, memo, Suspense } from 'react';

const Typeset = lazy(() => import('./typeset'));
/** A formula that is longer is no formula. */
const MOST_CHARACTERS = 4_000;

export const Maths = memo(function Maths({ tex, display = false }: { tex: string; display?: boolean }) {
  const plain = <code dir="ltr" className={`font-mono text-[0.88em] ${display ? 'block overflow-x-auto' : ''}`}>{tex}</code>;
  if (tex.length > MOST_CHARACTERS) return plain;
  return (
    <Suspense fallback={plain}>
      <Typeset tex={tex} display={display} plain={plain} />
    </Suspense>
  );
});
