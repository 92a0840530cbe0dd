/** The event ledger: incoming events and their results, newest first. */

import { formatRoute } from '../state/route';
import { useQuery } from '../state/use_answer';
import { age, moment } from '../ui/format';
import { Section } from './section';

const LIMIT = 50;

export function EventList({ onOpen }: { onOpen: () => void }) {
  const { answer, error } = useQuery('GET /api/events/ledger', { query: { limit: LIMIT } });
  return (
    <Section title="Events" error={error}>
      {answer?.events.length === 0 && <p className="text-sm text-quiet">No events</p>}
      <ol className="divide-y divide-line text-sm">
        {answer?.events.map((event) => (
          <li key={event.id} className="flex flex-wrap items-baseline gap-x-3 py-1">
            <span className="w-8 text-xs text-quiet">{event.direction}</span>
            <span dir="auto" className="min-w-0 flex-1 basis-40 truncate">
              {event.source} <span className="text-quiet">{event.type ?? event.source_id}</span>
            </span>
            {event.status && <span className="text-xs text-quiet">{event.status}</span>}
            <span className="text-xs text-quiet" title={moment(event.at)}>
              {age(event.at)}
            </span>
            <a
              href={formatRoute({ session: event.session_id, message: event.message_id })}
              onClick={onOpen}
              className="rounded text-xs text-thread underline"
              aria-label={`Open the session of ${event.source} ${event.source_id}`}
            >
              Open
            </a>
          </li>
        ))}
      </ol>
    </Section>
  );
}
