/** One model in the list, or the reason that it is unavailable. */

import type { ModelListing } from '../api/types';
import { Icon } from '../ui/icon';
import { tokens } from '../ui/format';

export interface Option {
  name: string;
  listing: ModelListing | null;
  usable: boolean;
}

interface Props {
  id: string;
  option: Option;
  selected: boolean;
  chosen: boolean;
  onSelect: () => void;
  onPick: () => void;
}

export function ModelOption({ id, option, selected, chosen, onSelect, onPick }: Props) {
  const { name, listing, usable } = option;
  const note = !listing ? 'custom' : usable ? `${tokens(listing.window)}${listing.default ? ' · default' : ''}` : (listing.reason ?? 'not set up');
  return (
    <div
      id={id}
      role="option"
      aria-selected={selected}
      aria-disabled={!usable}
      onPointerMove={() => usable && !selected && onSelect()}
      onPointerDown={(event) => {
        event.preventDefault();
        if (usable) onPick();
      }}
      className={`flex items-center gap-2 rounded px-2 py-1 text-sm ${usable ? 'cursor-pointer' : 'cursor-not-allowed text-quiet'} ${selected ? 'bg-thread-soft' : ''}`}
    >
      <Icon name="check" className={`size-3.5 ${chosen ? '' : 'invisible'}`} />
      <span className="min-w-0 flex-1 [overflow-wrap:anywhere]">{name}</span>
      <span className="max-w-40 shrink-0 text-end text-xs text-quiet">{note}</span>
    </div>
  );
}
