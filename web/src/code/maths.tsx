/** A formula. The typesetter loads with the first one; until then, or if it cannot be parsed, the formula is shown as text. */

import { lazy, memo, Suspense } from 'react';

const Typeset = lazy(() => import('./typeset'));
/** Longer input is not treated as a formula. */
const MAX_CHARACTERS = 4_000;

export const Maths = memo(function Maths({ tex, display = false }: { tex: string; display?: boolean }) {
  const plain = <code dir="ltr" className={`font-mono text-[0.88em] ${display ? 'block overflow-x-auto' : ''}`}>{tex}</code>;
  if (tex.length > MAX_CHARACTERS) return plain;
  return (
    <Suspense fallback={plain}>
      <Typeset tex={tex} display={display} plain={plain} />
    </Suspense>
  );
});
