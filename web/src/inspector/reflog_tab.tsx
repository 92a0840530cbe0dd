/** The reflog: every move of the head, each of which can be restored. */

import { useEffect, useState } from 'react';
import type { ReflogEntry } from '../api/types';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useQuery } from '../state/use_answer';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { age, moment } from '../ui/format';

const REASONS: Record<ReflogEntry['why'], string> = {
  branch: 'Branched',
  compaction: 'Summarised',
  goto: 'Jumped to',
  rewind: 'Rewound to',
  turn: 'Turn',
  unrewind: 'Restored',
};

const PAGE = 100;

export function ReflogTab() {
  const conversation = useThis();
  const head = useStore(conversation.store, (state) => state.session?.head_turn_id ?? null);
  const version = useStore(conversation.store, (state) => state.tree);
  const { client } = useHost();
  const { answer, error } = useQuery('GET /api/sessions/{id}/reflog', { path: { id: conversation.id }, query: { limit: PAGE } }, version);
  // Moves never change, so pages are merged by their numbers.
  const [read, setRead] = useState<ReadonlyMap<number, ReflogEntry>>(new Map());
  const add = (moves: ReflogEntry[]) => setRead((before) => new Map([...before, ...moves.map((move) => [move.seq, move] as const)]));
  useEffect(() => {
    if (answer) add(answer.moves);
  }, [answer]);
  if (error) return <p className="p-4 text-sm text-bad">{error}</p>;
  if (!answer) return null;
  if (answer.moves.length === 0) return <p className="p-4 text-sm text-quiet">No moves yet. Every turn, rewind and jump is listed here.</p>;
  const moves = [...new Map([...read, ...answer.moves.map((move) => [move.seq, move] as const)]).values()].sort((one, other) => other.seq - one.seq);
  const first = moves.at(-1)!.seq;
  const earlier = async () => add((await client.call('GET /api/sessions/{id}/reflog', { path: { id: conversation.id }, query: { limit: PAGE, before: first } })).moves);
  return (
    <ol className="divide-y divide-line">
      {moves.map((move) => (
        <li key={move.seq} className="flex items-start gap-2 px-4 py-2">
          <div className="min-w-0 flex-1">
            <p className="text-xs text-quiet" title={moment(move.at)}>
              {move.seq} · {REASONS[move.why]} · {age(move.at)}
            </p>
            <p dir="auto" className="line-clamp-2 text-sm [overflow-wrap:anywhere]">
              {move.text || (move.to_turn_id === null ? 'Start of the session' : move.to_turn_id)}
            </p>
          </div>
          {move.to_turn_id === head ? (
            <span className="rounded-full bg-thread-soft px-2 py-0.5 text-xs text-thread">current</span>
          ) : (
            move.to_turn_id !== null && (
              <Button aria-label={`Go to move ${move.seq}`} onClick={() => void conversation.goTo(move.to_turn_id!).catch(() => undefined)}>
                Go to
              </Button>
            )
          )}
        </li>
      ))}
      {first > 1 && (
        <li className="px-4 py-2">
          <Button tone="quiet" className="px-0 text-sm underline" onClick={() => void earlier().catch(() => undefined)}>
            {(first - 1).toLocaleString('en')} earlier moves
          </Button>
        </li>
      )}
    </ol>
  );
}
