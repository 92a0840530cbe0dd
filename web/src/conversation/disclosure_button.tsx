/** A button that shows or hides the content below it. */

import type { ReactNode } from 'react';
import { Icon } from '../ui/icon';

interface Props {
  open: boolean;
  onChange: (open: boolean) => void;
  children: ReactNode;
  className?: string;
  controls?: string;
}

export function DisclosureButton({ open, onChange, children, className = '', controls }: Props) {
  return (
    <button
      type="button"
      aria-expanded={open}
      aria-controls={open ? controls : undefined}
      onClick={() => onChange(!open)}
      className={`flex min-w-0 items-center gap-1.5 rounded-md text-left ${className}`}
    >
      <Icon name="chevron" className={`size-3.5 text-quiet transition-transform ${open ? 'rotate-90' : ''}`} />
      {children}
    </button>
  );
}
