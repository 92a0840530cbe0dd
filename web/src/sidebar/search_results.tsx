/** Search results: sessions by title, then messages. Arrows move, Enter opens. */

import type { KeyboardEvent, RefObject } from 'react';
import { formatRoute } from '../state/route';
import { Button } from '../ui/button';
import { age, count } from '../ui/format';
import { useNow } from './now';
import { SearchHit } from './search_hit';
import type { SearchResponse } from './use_search';

interface Props {
  found: SearchResponse | null;
  searching: boolean;
  more: () => void;
  field: RefObject<HTMLInputElement | null>;
  onClear: () => void;
}

export const RESULTS_ID = 'clew-results';

export function SearchResults({ found, searching, more, field, onClear }: Props) {
  const now = useNow(60_000);
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const all = [...event.currentTarget.querySelectorAll<HTMLElement>('a[data-hit], button[data-hit]')];
    const at = all.indexOf(document.activeElement as HTMLElement);
    if (event.key === 'ArrowDown') all[Math.min(at + 1, all.length - 1)]?.focus();
    else if (event.key === 'ArrowUp' && at <= 0) field.current?.focus();
    else if (event.key === 'ArrowUp') all[at - 1]?.focus();
    else if (event.key === 'Escape') onClear();
    else return;
    event.preventDefault();
  };
  const nothing = found && !found.problem && found.hits.length === 0 && found.titles.length === 0;
  const summary = !found
    ? 'Searching…'
    : !found.complete
      ? `${nothing ? 'No results yet' : count(found.hits.length, 'result')}. Older messages are still being indexed.`
      : nothing
        ? 'No results. All words must be in one message.'
        : `${count(found.hits.length, 'result')}${found.next ? ' and more' : ''}`;
  return (
    <div id={RESULTS_ID} role="region" aria-label="Search results" className={`grid grid-cols-1 content-start gap-1 px-2 pb-3 ${searching && found ? 'opacity-70' : ''}`} onKeyDown={onKeyDown}>
      <p role="status" className="px-2 text-xs text-quiet">
        {found?.problem ?? summary}
      </p>
      {found && found.titles.length > 0 && (
        <ul aria-label="Sessions with matching titles" className="grid grid-cols-1 gap-0.5">
          {found.titles.map((session) => (
            <li key={session.id}>
              <a href={formatRoute({ session: session.id })} data-hit className="flex items-baseline gap-1.5 rounded-md px-2 py-1.5 hover:bg-raised">
                <bdi dir="auto" className="min-w-0 flex-1 truncate text-sm">
                  {session.title}
                </bdi>
                <span className="shrink-0 text-xs text-quiet">
                  {session.archived_at !== null ? 'archived · ' : ''}title · {age(session.updated_at, now)}
                </span>
              </a>
            </li>
          ))}
        </ul>
      )}
      {found && found.hits.length > 0 && (
        <ul aria-label="Matching messages" className="grid grid-cols-1 gap-0.5">
          {found.hits.map((hit) => (
            <SearchHit key={hit.part_id} hit={hit} query={found.query} now={now} />
          ))}
        </ul>
      )}
      {found?.next && (
        <Button tone="quiet" data-hit disabled={searching} onClick={more}>
          {searching ? 'Searching…' : 'Show more'}
        </Button>
      )}
    </div>
  );
}
