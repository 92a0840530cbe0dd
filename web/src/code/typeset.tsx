/** KaTeX, with everything off that a formula does not need: no links, no pictures, no endless macros. */

import katex from 'katex';
import 'katex/dist/katex.min.css';
import { type ReactNode, useLayoutEffect, useRef, useState } from 'react';

const SETTINGS = { trust: false, strict: 'ignore', throwOnError: true, maxSize: 20, maxExpand: 200, output: 'htmlAndMathml' } as const;

export default function Typeset({ tex, display, plain }: { tex: string; display: boolean; plain: ReactNode }) {
  const place = useRef<HTMLSpanElement>(null);
  const [unread, setUnread] = useState<string | null>(null);
  useLayoutEffect(() => {
    if (!place.current) return;
    try {
      katex.render(tex, place.current, { ...SETTINGS, displayMode: display });
    } catch {
      // What a formula says that is not finished yet is shown as it stands.
      setUnread(tex);
    }
  }, [tex, display, unread]);
  if (unread === tex) return plain;
  return <span ref={place} dir="ltr" className={display ? 'block overflow-x-auto overflow-y-hidden py-1' : undefined} />;
}
