/** The search field for all sessions. Esc clears it, Down moves to the results. */

import type { RefObject } from 'react';
import { SEARCH_FIELD } from '../frame/shortcuts';
import { IconButton } from '../ui/button';
import { Icon } from '../ui/icon';

interface Props {
  ref: RefObject<HTMLInputElement | null>;
  text: string;
  onText: (text: string) => void;
  /** Down or Enter: focus or open the first item below. */
  onDown: (open: boolean) => void;
}

export function SearchField({ ref, text, onText, onDown }: Props) {
  return (
    <div role="search" className="relative mx-3">
      <Icon name="search" className="pointer-events-none absolute top-1/2 left-2 size-4 -translate-y-1/2 text-quiet" />
      <input
        ref={ref}
        id={SEARCH_FIELD}
        type="text"
        inputMode="search"
        autoComplete="off"
        spellCheck={false}
        dir="auto"
        aria-label="Search all sessions"
        placeholder="Search"
        title="Search all sessions (Ctrl Shift F)"
        maxLength={1000}
        value={text}
        onChange={(event) => onText(event.target.value)}
        onKeyDown={(event) => {
          if (event.nativeEvent.isComposing) return;
          if (event.key === 'Escape' && text) onText('');
          else if (event.key === 'ArrowDown') onDown(false);
          else if (event.key === 'Enter' && text) onDown(true);
          else return;
          event.preventDefault();
          event.stopPropagation();
        }}
        className="w-full rounded-md border border-line bg-raised py-1.5 ps-8 pe-8 text-sm placeholder:text-quiet"
      />
      {text && (
        <IconButton
          label="Clear the search"
          icon="close"
          className="absolute top-1/2 right-0.5 size-7 -translate-y-1/2"
          onClick={() => {
            onText('');
            ref.current?.focus();
          }}
        />
      )}
    </div>
  );
}
