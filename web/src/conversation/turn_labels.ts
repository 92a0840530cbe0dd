/** Labels for turns that did not complete, and the next action. */

import { type Failure, failureText, sentence } from '../api/failure';
import type { Metadata } from '../api/types';

export interface Ending {
  tone: 'bad' | 'quiet';
  summary: string;
  /** Additional text, usually what to do next. */
  hint?: string;
  /** The message of a provider or program. */
  details?: string;
  /** The label of the button that continues. */
  next: string | null;
}

export interface TurnProblem extends Failure {
  /** The text of a refused prompt. */
  text?: string;
  /** The request body of a branch in which the turn would fit. */
  branch?: Record<string, unknown> | null;
}

/** Replacements for stop reasons of the engine that are not meant for people. */
const REASONS: Record<string, string> = { 'the host is shutting down': 'The server was shut down.' };

function failed(error: Failure | null | undefined): Pick<Ending, 'summary' | 'hint' | 'details'> {
  if (!error?.code && !error?.message) return { summary: 'This turn failed.' };
  const { summary, hint, details } = failureText(error);
  return { summary, ...(hint ? { hint } : {}), ...(details ? { details } : {}) };
}

export function ending(turn: Metadata['turn']): Ending | null {
  if (!turn) return null;
  if (turn.status === 'completed') {
    if (turn.stopped === 'step_limit') return { tone: 'quiet', summary: turn.max_steps ? `Stopped at the step limit (${turn.max_steps}).` : 'Stopped at the step limit.', hint: 'To raise it, set max_steps in the agent’s file.', next: 'Continue' };
    if (turn.stopped === 'length') return { tone: 'quiet', summary: 'Cut off at the output limit of the model.', next: 'Continue' };
    if (turn.stopped === 'content_filter') return { tone: 'quiet', summary: 'Stopped by the provider’s content filter.', next: null };
    if (turn.stopped === 'error') return { tone: 'bad', summary: 'The model stopped with an error.', next: null };
    if (turn.stopped === 'other') return { tone: 'quiet', summary: 'Stopped for an unknown reason; the answer may be incomplete.', next: 'Continue' };
    if (turn.stopped === 'doom_loop') return { tone: 'quiet', summary: 'Stopped: repeating the same calls.', next: 'Continue' };
    return null;
  }
  if (turn.status === 'failed') return { tone: 'bad', ...failed(turn.error), next: 'Try again' };
  if (turn.status === 'refused') return { tone: 'bad', ...failed(turn.error), next: null };
  if (turn.status === 'aborted') {
    const reason = turn.stopped && !['aborted', 'abort', 'aborted by the user'].includes(turn.stopped) ? (REASONS[turn.stopped] ?? sentence(turn.stopped)) : undefined;
    return { tone: 'quiet', summary: 'Stopped.', ...(reason ? { hint: reason } : {}), next: 'Continue' };
  }
  if (turn.status === 'unanswered') {
    return turn.error
      ? { tone: 'bad', ...failed(turn.error), next: 'Try again' }
      : { tone: 'quiet', summary: 'Not answered yet.', next: 'Continue' };
  }
  return null;
}
