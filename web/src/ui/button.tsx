import type { ButtonHTMLAttributes, Ref } from 'react';
import { Icon, type IconName } from './icon';

type Tone = 'plain' | 'quiet' | 'thread' | 'danger';

const TONES: Record<Tone, string> = {
  plain: 'border border-line bg-raised hover:bg-panel text-ink',
  quiet: 'text-quiet hover:text-ink hover:bg-panel',
  thread: 'bg-thread text-thread-ink hover:opacity-90',
  danger: 'border border-bad text-bad bg-raised hover:bg-bad-soft',
};

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  tone?: Tone;
  icon?: IconName;
  ref?: Ref<HTMLButtonElement>;
  /** Takes the focus when the focused element nearby is removed. */
  'data-home'?: boolean;
  /** Its keyboard shortcut, shown next to the label. */
  'data-key'?: string;
}

export function Button({ tone = 'plain', icon, className = '', children, type = 'button', ...rest }: Props) {
  return (
    <button
      type={type}
      className={`inline-flex items-center justify-center gap-1.5 rounded-md px-2.5 py-1 text-sm font-medium whitespace-nowrap disabled:opacity-50 aria-disabled:opacity-60 ${TONES[tone]} ${className}`}
      {...rest}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

/** A button with only an icon; `label` is its accessible name and tooltip. */
export function IconButton({ label, icon, tone = 'quiet', className = '', type = 'button', ...rest }: Props & { label: string; icon: IconName }) {
  return (
    <button
      type={type}
      aria-label={label}
      title={label}
      className={`inline-flex size-8 shrink-0 items-center justify-center rounded-md disabled:opacity-50 ${TONES[tone]} ${className}`}
      {...rest}
    >
      <Icon name={icon} />
    </button>
  );
}
