/** Usage by day, model, session and folder, over a period. */

import { useState } from 'react';
import { useHost } from '../state/host';
import { formatRoute } from '../state/route';
import { useStore } from '../state/store';
import { useQuery } from '../state/use_answer';
import { Dialog } from '../ui/dialog';
import { count } from '../ui/format';
import { Choice } from './rows';
import { type SpendGroup, costOf, remarksOf, rowsOf } from './spend';

const DAY_MS = 86_400_000;
const SPANS = [['1', 'The last 24 hours'], ['7', 'The last 7 days'], ['30', 'The last 30 days'], ['', 'All time']] as const;
const GROUPS = [['day', 'Day (UTC)'], ['model', 'Model'], ['session', 'Session'], ['workspace', 'Folder']] as const;

export function SpendDialog({ onClose }: { onClose: () => void }) {
  const host = useHost();
  const sessions = useStore(host.store, (state) => state.sessions);
  const [by, setBy] = useState<SpendGroup>('day');
  const [span, setSpan] = useState('30');
  const [now] = useState(() => Date.now());
  const { answer, error } = useQuery('GET /api/usage', { query: { by, ...(span ? { from: String(now - Number(span) * DAY_MS) } : {}) } });
  const titles = new Map(sessions.map((session) => [session.id, session.title]));
  const rows = answer ? rowsOf(answer, by, (id) => titles.get(id) ?? null) : [];
  return (
    <Dialog title="Usage" onClose={onClose} wide>
      <div className="grid grid-cols-1 gap-4">
        <div className="flex flex-wrap gap-x-8 gap-y-2">
          <Choice label="Group by" value={by} onChange={(name) => setBy(name as SpendGroup)} options={GROUPS} />
          <Choice label="Period" value={span} onChange={setSpan} options={SPANS} />
        </div>
        {error && <p role="alert" className="text-sm text-bad">{error}</p>}
        {answer && (
          <>
            <p role="status" className="text-lg">
              <strong>{costOf(answer.total)}</strong> <span className="text-sm text-quiet">for {count(answer.total.calls, 'model call')}</span>
            </p>
            {rows.length === 0 ? (
              <p className="text-sm text-quiet">No model calls in this period.</p>
            ) : (
              <table className="w-full table-fixed text-sm">
                <thead>
                  <tr className="text-left text-quiet">
                    <th scope="col" className="py-1 font-medium">{GROUPS.find(([name]) => name === by)?.[1]}</th>
                    <th scope="col" className="w-16 py-1 text-end font-medium">Calls</th>
                    <th scope="col" className="w-20 py-1 text-end font-medium max-sm:hidden">Tokens</th>
                    <th scope="col" className="w-28 py-1 text-end font-medium">Cost</th>
                  </tr>
                </thead>
                <tbody>
                  {rows.map((row) => (
                    <tr key={row.key} className="border-t border-line align-baseline">
                      <td className="py-1 pe-3">
                        {row.session ? (
                          <a href={formatRoute({ session: row.session })} onClick={onClose} className="block truncate underline decoration-line hover:decoration-current">
                            {row.name}
                          </a>
                        ) : (
                          <span className="block truncate" title={row.name}>{row.name}</span>
                        )}
                        <span aria-hidden="true" className="mt-0.5 block h-1 rounded-full bg-line">
                          <span className="block h-full rounded-full bg-thread" style={{ width: `${row.share}%` }} />
                        </span>
                      </td>
                      <td className="py-1 text-end tabular-nums">{row.calls}</td>
                      <td className="py-1 text-end tabular-nums max-sm:hidden">{row.tokens}</td>
                      <td className="py-1 text-end tabular-nums">{row.cost}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )}
            {remarksOf(answer.total).map((remark) => (
              <p key={remark} className="text-xs text-quiet">
                {remark}
              </p>
            ))}
          </>
        )}
      </div>
    </Dialog>
  );
}
