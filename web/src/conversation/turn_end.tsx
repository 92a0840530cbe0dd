/** How a turn ended that did not end well, in plain words, and the way on. */

import type { BranchBody } from '@clew/client';
import type { Message, Metadata } from '../api/types';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { Icon } from '../ui/icon';
import { SaidDetails } from '../ui/said_details';
import { ending, type Ending, type TurnProblem } from './turn_words';

const ENDED = new Set(['failed', 'aborted', 'unanswered']);

/** What is known of the end of a message's turn: what the message says, or for the newest one what stands around it. */
export function useTurn(message: Message | undefined, last: boolean): Metadata['turn'] {
  const conversation = useThis();
  const told = message?.metadata?.turn;
  const id = message?.metadata?.turn_id;
  const status = useStore(conversation.store, ({ tree }) => (last && !told && id ? (tree?.turns.findLast((turn) => turn.id === id)?.status ?? null) : null));
  const problem = useStore(conversation.store, (state) => (last && state.status.state === 'error' ? (state.status.problem ?? null) : null));
  if (told || status === null || !ENDED.has(status)) return told;
  return { status, error: status === 'aborted' ? null : (problem as NonNullable<Metadata['turn']>['error']) };
}

export function TurnEnd({ message, last }: { message: Message; last: boolean }) {
  const turn = useTurn(message, last);
  const end = ending(turn);
  return end && <EndLine end={end} problem={(turn?.error ?? null) as TurnProblem | null} last={last} />;
}

/** The same, when only the session's status tells it: the turn was refused, and its prompt is not on the line. */
export function StatusEnd() {
  const conversation = useThis();
  const problem = useStore(conversation.store, ({ status }) => (status.state === 'error' ? (status.problem ?? null) : null)) as TurnProblem | null;
  if (!problem) return null;
  const refused = typeof problem.text === 'string';
  const end = ending({ status: refused ? 'refused' : 'failed', error: { ...problem, code: problem.code ?? '', message: problem.message ?? '' } });
  return end && <EndLine end={end} problem={problem} last />;
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
