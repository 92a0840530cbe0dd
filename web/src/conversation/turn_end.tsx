/** How a turn ended that did not end well, in plain words, and the way on. */

import type { BranchBody } from '@clew/client';
import type { Message } from '../api/types';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { Icon } from '../ui/icon';
import { SaidDetails } from '../ui/said_details';
import { ending, type Ending, type TurnProblem } from './turn_words';

const ENDED = new Set(['failed', 'aborted', 'unanswered']);

/** Of a turn that others followed. */
export function TurnEnd({ message }: { message: Message }) {
  const end = ending(message.metadata?.turn);
  return end && <EndLine end={end} problem={(message.metadata?.turn?.error ?? null) as TurnProblem | null} last={false} />;
}

/**
 * Of the newest turn, below all messages. The session's status tells it first, and alone where the turn was refused and its prompt is not on
 * the line; the tree and the message tell it as soon as they are read. It is one line all the same: one that came again elsewhere would be
 * read out twice, and take a press or an opened detail along.
 */
export function NewestEnd({ last }: { last: Message | undefined }) {
  const conversation = useThis();
  const stored = last?.metadata?.turn;
  const id = last?.metadata?.turn_id;
  const status = useStore(conversation.store, ({ tree }) => (id ? (tree?.turns.findLast((turn) => turn.id === id)?.status ?? null) : null));
  const problem = useStore(conversation.store, (state) => (state.status.state === 'error' ? (state.status.problem ?? null) : null)) as TurnProblem | null;
  const error = problem && { ...problem, code: problem.code ?? '', message: problem.message ?? '' };
  const turn = stored ?? (status !== null && ENDED.has(status) ? { status, error: status === 'aborted' ? null : error } : undefined);
  const told = ending(turn);
  const end = told ?? (error && ending({ status: typeof error.text === 'string' ? 'refused' : 'failed', error }));
  return end && <EndLine end={end} problem={told ? ((turn?.error ?? null) as TurnProblem | null) : problem} last />;
}

function EndLine({ end, problem, last }: { end: Ending; problem: TurnProblem | null; last: boolean }) {
  const conversation = useThis();
  const { client } = useHost();
  const branch = problem?.branch;
  const text = problem?.text;
  const goOnInBranch = async () => {
    try {
      const session = await client.call('POST /api/sessions/{id}/branch', { path: { id: conversation.id }, body: branch as unknown as BranchBody });
      goTo({ session: session.id });
    } catch {
      conversation.say('The branch could not be made.');
    }
  };
  return (
    <div
      data-newest-end={last || undefined}
      role={end.tone === 'bad' && last ? 'alert' : undefined}
      className={`my-2 flex min-w-0 flex-wrap items-center gap-x-3 gap-y-2 rounded-lg px-3 py-2 text-sm ${end.tone === 'bad' ? 'bg-bad-soft text-bad' : 'bg-panel text-quiet'}`}
    >
      <span className="flex min-w-0 flex-1 items-start gap-2">
        {end.tone === 'bad' && <Icon name="warning" className="mt-0.5 size-4" />}
        <span className="min-w-0 break-words">
          {end.words} {end.detail}
        </span>
      </span>
      {last && (
        <span className="flex flex-wrap gap-2">
          {end.next && <Button onClick={() => void conversation.goOn().catch(() => undefined)}>{end.next}</Button>}
          {text && <Button onClick={() => conversation.offer(text)}>Put the text back</Button>}
          {branch && <Button onClick={() => void goOnInBranch()}>Go on in a branch</Button>}
        </span>
      )}
      {end.said && <SaidDetails text={end.said} />}
    </div>
  );
}
