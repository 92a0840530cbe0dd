/** KaTeX with unneeded features off: no links, no images, no unbounded macros. */

import katex from 'katex';
import 'katex/dist/katex.min.css';
import { type ReactNode, useLayoutEffect, useRef, useState } from 'react';

const SETTINGS = { trust: false, strict: 'ignore', throwOnError: true, maxSize: 20, maxExpand: 200, output: 'htmlAndMathml' } as const;

export default function Typeset({ tex, display, plain }: { tex: string; display: boolean; plain: ReactNode }) {
  const target = useRef<HTMLSpanElement>(null);
  const [invalid, setInvalid] = useState<string | null>(null);
  useLayoutEffect(() => {
    if (!target.current) return;
    try {
      katex.render(tex, target.current, { ...SETTINGS, displayMode: display });
    } catch {
      // An unfinished formula is shown as text.
      setInvalid(tex);
    }
  }, [tex, display, invalid]);
  if (invalid === tex) return plain;
  return <span ref={target} dir="ltr" className={display ? 'block overflow-x-auto overflow-y-hidden py-1' : undefined} />;
}
