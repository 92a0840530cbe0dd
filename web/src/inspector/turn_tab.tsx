/** One turn: cost, duration, and exactly what the model saw. */

import { useState } from 'react';
import { modelName, type TreeTurn } from '../api/types';
import { useStore } from '../state/store';
import { useQuery } from '../state/use_answer';
import { useThis } from '../state/use_conversation';
import { view } from '../state/view';
import { Button } from '../ui/button';
import { cost, duration, moment } from '../ui/format';
import { DiffDialog } from './diff_dialog';
import { RequestView } from './request_view';
import { UsageTable } from './usage_table';

const ENDED: Record<TreeTurn['status'], string> = {
  aborted: 'Stopped',
  compacting: 'Compacting',
  completed: 'Completed',
  failed: 'Failed',
  refused: 'Refused',
  retrying: 'Retrying',
  running: 'Running',
  unanswered: 'Not answered yet',
  waiting: 'Waiting for you',
};

export function TurnTab() {
  const conversation = useThis();
  const tree = useStore(conversation.store, (state) => state.tree);
  const picked = useStore(view, (state) => state.turn);
  const [against, setAgainst] = useState<string | null>(null);
  const id = picked ?? tree?.open_turn_id ?? tree?.head_turn_id ?? null;
  const known = tree?.turns.find((turn) => turn.id === id);
  const { answer: turn, error } = useQuery('GET /api/turns/{id}', id ? { path: { id } } : null, `${known?.status} ${known?.settled_at}`);

  if (!id) return <p className="p-4 text-sm text-quiet">No turns yet. Send a message to see what the model received and used.</p>;
  if (error) return <p className="p-4 text-sm text-bad">{error}</p>;
  if (!turn) return null;
  const problem = turn.data.error as { code: string; message: string } | undefined;
  const totalCost = turn.steps.reduce((sum, step) => sum + step.cost_usd, 0);
  const others = (tree?.turns ?? []).filter((other) => other.id !== id && other.kind === 'normal' && other.status !== 'refused');
  return (
    <div className="grid gap-3 py-3">
      <div className="grid gap-1 px-4">
        <h2 className="truncate font-medium" dir="auto" title={known?.text}>
          {known?.text || 'This turn'}
        </h2>
        <p className="text-sm text-quiet">
          {ENDED[turn.status as TreeTurn['status']] ?? turn.status} · {moment(turn.created_at)}
          {turn.settled_at !== null && ` · ${duration(turn.settled_at - turn.created_at)}`}
        </p>
        {problem && (
          <p className="text-sm break-words text-bad">
            {problem.message} <span className="font-mono text-xs">({problem.code})</span>
          </p>
        )}
        {picked && (
          <div className="flex flex-wrap gap-2 pt-1">
            {known && !known.on_line && known.status !== 'refused' && <Button onClick={() => void conversation.goTo(known.id).catch(() => undefined)}>Go to this turn</Button>}
            <Button tone="quiet" className="px-0 underline" onClick={() => view.set({ turn: null })}>
              Show the newest turn
            </Button>
          </div>
        )}
      </div>
      {turn.steps.length > 0 && (
        <div className="grid gap-3 px-4">
          <UsageTable steps={turn.steps} />
          <ol className="grid gap-1 text-sm">
            {turn.steps.map((step) => (
              <li key={step.index} className="flex flex-wrap gap-x-2 text-quiet">
                <span className="text-ink">Step {step.index + 1}</span>
                <span className="min-w-0 break-words">{modelName(step.model)}</span>
                <span>{duration(step.finished_at - step.started_at)}</span>
                {step.finish_reason && <span>{step.finish_reason}</span>}
              </li>
            ))}
          </ol>
          <p className="text-sm text-quiet">Cost: {totalCost > 0 ? cost(totalCost) : 'unknown, or free'}</p>
          <label className="grid gap-1 text-sm">
            <span className="text-quiet">Compare what the model saw with another turn</span>
            <select
              className="w-full min-w-0 rounded-md border border-line bg-raised px-2 py-1 text-sm"
              value=""
              onChange={(event) => event.target.value && setAgainst(event.target.value)}
            >
              <option value="">Choose a turn…</option>
              {others.slice(-200).reverse().map((other) => (
                <option key={other.id} value={other.id}>
                  {other.on_line ? '' : '(rewound) '}
                  {other.text.slice(0, 60) || other.id}
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      {turn.steps.length > 0 && <RequestView turnId={turn.id} steps={turn.steps.length} />}
      {against && <DiffDialog left={against} right={turn.id} onClose={() => setAgainst(null)} />}
    </div>
  );
}
