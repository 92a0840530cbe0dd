/** The end of a turn that did not complete, and the next action. */

import type { BranchBody } from '@clew/client';
import type { Message } from '../api/types';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { Icon } from '../ui/icon';
import { ErrorDetails } from '../ui/error_details';
import { ending, type Ending, type TurnProblem } from './turn_labels';

const ENDED = new Set(['failed', 'aborted', 'unanswered']);

/** The end of a turn that is not the newest. */
export function TurnEnd({ message }: { message: Message }) {
  const end = ending(message.metadata?.turn);
  return end && <EndLine end={end} problem={(message.metadata?.turn?.error ?? null) as TurnProblem | null} last={false} />;
}

/**
 * The end of the newest turn, below all messages. The session's status reports it first, and is the only source if the
 * prompt was refused; the tree and the message report it once they are loaded. It stays one mounted element: a second one
 * would be announced twice, and would lose a press or an open detail.
 */
export function NewestEnd({ last }: { last: Message | undefined }) {
  const conversation = useThis();
  const stored = last?.metadata?.turn;
  const id = last?.metadata?.turn_id;
  const status = useStore(conversation.store, ({ tree }) => (id ? (tree?.turns.findLast((turn) => turn.id === id)?.status ?? null) : null));
  const problem = useStore(conversation.store, (state) => (state.status.state === 'error' ? (state.status.problem ?? null) : null)) as TurnProblem | null;
  const error = problem && { ...problem, code: problem.code ?? '', message: problem.message ?? '' };
  const turn = stored ?? (status !== null && ENDED.has(status) ? { status, error: status === 'aborted' ? null : error } : undefined);
  const ended = ending(turn);
  const end = ended ?? (error && ending({ status: typeof error.text === 'string' ? 'refused' : 'failed', error }));
  return end && <EndLine end={end} problem={ended ? ((turn?.error ?? null) as TurnProblem | null) : problem} last />;
}

function EndLine({ end, problem, last }: { end: Ending; problem: TurnProblem | null; last: boolean }) {
  const conversation = useThis();
  const { client } = useHost();
  const branch = problem?.branch;
  const text = problem?.text;
  const continueInBranch = async () => {
    try {
      const session = await client.call('POST /api/sessions/{id}/branch', { path: { id: conversation.id }, body: branch as unknown as BranchBody });
      goTo({ session: session.id });
    } catch {
      conversation.notify('Could not create the branch.');
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
          {end.summary} {end.hint}
        </span>
      </span>
      {last && (
        <span className="flex flex-wrap gap-2">
          {end.next && <Button onClick={() => void conversation.continueTurn().catch(() => undefined)}>{end.next}</Button>}
          {text && <Button onClick={() => conversation.fillComposer(text)}>Restore the text</Button>}
          {branch && <Button onClick={() => void continueInBranch()}>Continue in a branch</Button>}
        </span>
      )}
      {end.details && <ErrorDetails text={end.details} />}
    </div>
  );
}
