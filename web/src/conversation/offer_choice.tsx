/** Selects what "for this session" and "always" cover, from the exact call to a family of calls. */

import { useId } from 'react';
import type { Offer } from './tool_part';

interface Props {
  offers: Offer[];
  /** Pattern of the selected offer. */
  picked: string;
  onPick: (pattern: string) => void;
}

export function OfferChoice({ offers, picked, onPick }: Props) {
  const id = useId();
  if (offers.length === 0) return <p className="text-sm text-quiet">This can’t be saved as a rule</p>;
  if (offers.length === 1) {
    return <p className="text-sm break-words text-quiet">“Always allow” would cover: {offers[0]!.words}</p>;
  }
  return (
    <div className="grid min-w-0 gap-1 text-sm">
      <label htmlFor={id} className="text-quiet">
        “Always allow” would cover
      </label>
      <select id={id} value={picked} onChange={(event) => onPick(event.target.value)} className="w-full min-w-0 rounded-md border border-line bg-raised px-2 py-1 text-sm">
        {offers.map((offer) => (
          <option key={offer.pattern} value={offer.pattern}>
            {offer.words}
          </option>
        ))}
      </select>
    </div>
  );
}
