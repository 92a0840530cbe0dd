/** One search result. */

import { flushSync } from 'react-dom';
import type { SearchHit as Hit } from '../api/types';
import { formatRoute, goTo } from '../state/route';
import { view } from '../state/view';
import { age } from '../ui/format';
import { pieces } from './snippet';

const ROLE_LABELS: Record<string, string> = { user: 'You', assistant: 'Answer', system: 'System' };

export function SearchHit({ hit, query, now }: { hit: Hit; query: string; now: number }) {
  const route = { session: hit.session_id, message: hit.message_id };
  return (
    <li>
      <a
        href={formatRoute(route)}
        data-hit
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          // Clicking the same result again must scroll to it again, so leave the message route first.
          if (window.location.hash === formatRoute(route)) flushSync(() => goTo({ session: hit.session_id }, true));
          goTo(route);
          view.set({ sidebar: false });
        }}
        className="block rounded-md px-2 py-1.5 hover:bg-raised"
      >
        <span className="flex items-baseline gap-1.5 text-xs text-quiet">
          <bdi dir="auto" className="min-w-0 flex-1 truncate font-medium text-ink">
            {hit.title || 'Untitled'}
          </bdi>
          {hit.hidden && (
            <span className="rounded bg-warn-soft px-1 text-warn" title="No longer part of the conversation: rewound or summarised">
              hidden
            </span>
          )}
          <span className="shrink-0">
            {ROLE_LABELS[hit.role] ?? hit.role} · {age(hit.created_at, now)}
          </span>
        </span>
        <span dir="auto" className="line-clamp-3 text-sm leading-snug text-quiet [overflow-wrap:anywhere]">
          {pieces(hit.snippet, query).map((piece, index) =>
            piece.found ? (
              <mark key={index} className="rounded-xs bg-thread-soft text-ink">
                {piece.text}
              </mark>
            ) : (
              piece.text
            ),
          )}
        </span>
      </a>
    </li>
  );
}
