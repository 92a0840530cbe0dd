/** A textarea that grows with its text, up to a share of the screen. */

import { type ComponentProps, type RefObject, useLayoutEffect } from 'react';

type Props = ComponentProps<'textarea'> & { ref: RefObject<HTMLTextAreaElement | null>; value: string };

export function GrowingField({ ref, value, className = '', ...rest }: Props) {
  useLayoutEffect(() => {
    const field = ref.current;
    if (!field) return;
    const fit = () => {
      field.style.height = 'auto';
      field.style.height = `${field.scrollHeight}px`;
    };
    fit();
    // The text wraps differently when the width changes.
    let width = field.clientWidth;
    const watch = new ResizeObserver(() => {
      if (field.clientWidth === width) return;
      width = field.clientWidth;
      fit();
    });
    watch.observe(field);
    return () => watch.disconnect();
  }, [ref, value]);
  return <textarea ref={ref} rows={1} value={value} dir="auto" className={`block max-h-[40dvh] w-full resize-none overflow-y-auto bg-transparent ${className}`} {...rest} />;
}
