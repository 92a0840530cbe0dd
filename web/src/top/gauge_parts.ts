/** The context gauge: its parts as shares of a bar, and the whole in words. */

import type { ContextReport } from '../api/types';
import { tokens } from '../ui/words';

export type PartName = 'system' | 'tools' | 'summary' | 'history';

export const PART_WORDS: Record<PartName, string> = {
  system: 'System prompt',
  tools: 'Tools',
  summary: 'Summary',
  history: 'Conversation',
};

export interface GaugePart {
  name: PartName;
  tokens: number;
  /** Of the whole bar, in percent. */
  share: number;
}

export interface Gauge {
  parts: GaugePart[];
  /** Where the older turns are summarised by themselves, in percent of the bar. */
  threshold: number;
  /** How full it is, in percent of the limit; more than 100 when it does not fit. */
  percent: number;
  state: 'room' | 'near' | 'over';
}

/** The bar is as long as the window, or as what is used when that is more. Parts are brought to the sum that is used. */
export function gaugeOf(report: ContextReport): Gauge {
  const { limit, used, threshold } = report;
  const length = Math.max(limit, used, 1);
  const names = Object.keys(PART_WORDS) as PartName[];
  const sum = names.reduce((total, name) => total + report.parts[name], 0);
  const parts = names
    .filter((name) => report.parts[name] > 0)
    .map((name) => ({ name, tokens: report.parts[name], share: ((report.parts[name] / sum) * used * 100) / length }));
  const percent = limit > 0 ? Math.round((used / limit) * 100) : 0;
  const state = used > threshold ? 'over' : used > threshold * 0.85 ? 'near' : 'room';
  return { parts, threshold: Math.min(100, (threshold / length) * 100), percent, state };
}

/** “12k of 200k”, and “about” when it is an estimate. */
export function shortWords(report: ContextReport): string {
  return `${report.measured ? '' : 'about '}${tokens(report.used)} of ${tokens(report.limit)}`;
}

export function gaugeWords(report: ContextReport): string {
  const { percent } = gaugeOf(report);
  const saved = report.parts.pruned > 0 ? ` Pruning saves ${tokens(report.parts.pruned)}.` : '';
  return `${report.measured ? 'The' : 'By estimate, the'} next request takes ${tokens(report.used)} of ${tokens(report.limit)} tokens (${percent}%). Older turns are summarised at ${tokens(report.threshold)}.${saved}`;
}
