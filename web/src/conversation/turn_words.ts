/** How a turn ended, when it did not end well: what to say, and what can be done next. */

import { type Failure, failureWords, sentence } from '../api/failure';
import type { Metadata } from '../api/types';

export interface Ending {
  tone: 'bad' | 'quiet';
  words: string;
  /** What adds to it: mostly what can be done. */
  detail?: string;
  /** What a provider or a program said. */
  said?: string;
  /** The label of the button that goes on. */
  next: string | null;
}

export interface TurnProblem extends Failure {
  /** The prompt that was handed back. */
  text?: string;
  /** The body of a branch in which the turn would fit. */
  branch?: Record<string, unknown> | null;
}

/** Why a turn was stopped, where the engine's own words are not for people. */
const REASONS: Record<string, string> = { 'the host is shutting down': 'The server was shut down.' };

function failed(error: Failure | null | undefined): Pick<Ending, 'words' | 'detail' | 'said'> {
  if (!error?.code && !error?.message) return { words: 'This turn failed.' };
  const { words, then, said } = failureWords(error);
  return { words, ...(then ? { detail: then } : {}), ...(said ? { said } : {}) };
}

export function ending(turn: Metadata['turn']): Ending | null {
  if (!turn) return null;
  if (turn.status === 'completed') {
    if (turn.stopped === 'step_limit') return { tone: 'quiet', words: turn.max_steps ? `Stopped after ${turn.max_steps} steps, the limit.` : 'Stopped at the step limit.', detail: 'max_steps in the file of the agent raises it.', next: 'Continue' };
    if (turn.stopped === 'length') return { tone: 'quiet', words: 'Cut off at the limit of its length.', next: 'Continue' };
    if (turn.stopped === 'content_filter') return { tone: 'quiet', words: 'Stopped by the filter of the provider.', next: null };
    if (turn.stopped === 'error') return { tone: 'bad', words: 'The model broke off with an error of its own.', next: null };
    if (turn.stopped === 'other') return { tone: 'quiet', words: 'Stopped for a reason that is not known; there may be more to come.', next: 'Continue' };
    if (turn.stopped === 'doom_loop') return { tone: 'quiet', words: 'Stopped, because it repeated itself.', next: 'Continue' };
    return null;
  }
  if (turn.status === 'failed') return { tone: 'bad', ...failed(turn.error), next: 'Try again' };
  if (turn.status === 'refused') return { tone: 'bad', ...failed(turn.error), next: null };
  if (turn.status === 'aborted') {
    const reason = turn.stopped && !['aborted', 'abort', 'aborted by the user'].includes(turn.stopped) ? (REASONS[turn.stopped] ?? sentence(turn.stopped)) : undefined;
    return { tone: 'quiet', words: 'Stopped.', ...(reason ? { detail: reason } : {}), next: 'Continue' };
  }
  if (turn.status === 'unanswered') {
    return turn.error
      ? { tone: 'bad', ...failed(turn.error), next: 'Try again' }
      : { tone: 'quiet', words: 'Not answered yet.', next: 'Continue' };
  }
  return null;
}
