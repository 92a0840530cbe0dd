/** Copies a text, and says for a moment that it did. */

import { useEffect, useState } from 'react';
import { Icon } from '../ui/icon';

interface Props {
  /** Read when it is pressed: the text may still be growing. */
  text: () => string;
  label: string;
  disabled?: boolean;
  className?: string;
}

export function CopyButton({ text, label, disabled, className = '' }: Props) {
  const [said, setSaid] = useState<'copied' | 'failed' | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), 1600);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setSaid('copied');
    } catch {
      setSaid('failed');
    }
  };
  const title = said === 'copied' ? 'Copied' : said === 'failed' ? 'The browser does not let this page copy' : label;
  return (
    <button
      type="button"
      aria-label={title}
      title={title}
      disabled={disabled}
      onClick={() => void copy()}
      className={`inline-flex size-7 shrink-0 items-center justify-center rounded-md text-quiet hover:bg-panel hover:text-ink disabled:opacity-50 ${className}`}
    >
      <Icon name={said === 'copied' ? 'check' : said === 'failed' ? 'warning' : 'copy'} className="size-3.5" />
    </button>
  );
}
