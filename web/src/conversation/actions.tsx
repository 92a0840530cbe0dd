/** The row of buttons under a message, visible on hover, focus and touch. Its space is always reserved. */

import type { ReactNode } from 'react';
import { Icon, type IconName } from '../ui/icon';
import { moment, timeOfDay } from '../ui/format';

export function Actions({ label, always = false, children, className = '' }: { label: string; always?: boolean; children: ReactNode; className?: string }) {
  return (
    <div
      role="group"
      aria-label={label}
      className={`flex h-7 items-center gap-0.5 pointer-coarse:h-auto pointer-coarse:min-h-11 pointer-coarse:flex-wrap ${always ? '' : 'opacity-0 transition-opacity has-aria-expanded:opacity-100 group-focus-within/message:opacity-100 group-hover/message:opacity-100 pointer-coarse:opacity-100'} ${className}`}
    >
      {children}
    </div>
  );
}

export function Action({ label, icon, disabled, onClick }: { label: string; icon: IconName; disabled?: boolean; onClick: () => void }) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      disabled={disabled}
      onClick={onClick}
      className="inline-flex size-7 shrink-0 items-center justify-center rounded-md text-quiet hover:bg-panel hover:text-ink disabled:opacity-50"
    >
      <Icon name={icon} className="size-3.5" />
    </button>
  );
}

/** The time of a message, with the date on hover. */
export function Moment({ at }: { at: number | undefined }) {
  if (at === undefined) return null;
  const time = new Date(at);
  return (
    <time dateTime={time.toISOString()} title={moment(at)} className="px-1.5 text-xs text-quiet tabular-nums">
      {timeOfDay(at)}
    </time>
  );
}
