/** What was spent, as rows one can read: what is a guess is marked, and what has no price is said. */

import type { UsageReport } from '@clew/client';
import { cost, count, tokens } from '../ui/words';

export type By = 'day' | 'model' | 'session' | 'workspace';
type Group = UsageReport['groups'][number];

export interface SpendRow {
  key: string;
  name: string;
  /** Where it leads; null where there is nothing to open. */
  session: string | null;
  calls: string;
  tokens: string;
  cost: string;
  /** Of the largest row, in percent. */
  share: number;
}

/** Days by their time, newest first; everything else by what it cost, and then by its size. */
export function rowsOf(report: UsageReport, by: By, titleOf: (session: string) => string | null): SpendRow[] {
  const groups = [...report.groups].sort((a, b) => (by === 'day' ? (b.key ?? '').localeCompare(a.key ?? '') : b.cost_usd - a.cost_usd || sizeOf(b) - sizeOf(a)));
  const priced = groups.some((group) => group.cost_usd > 0);
  const measure = (group: Group) => (priced ? group.cost_usd : sizeOf(group));
  const most = Math.max(...groups.map(measure), 0);
  return groups.map((group) => ({
    key: group.key ?? '',
    name: group.key === null ? { session: 'Sessions that are gone', workspace: 'No folder', day: 'No day', model: 'No model' }[by] : by === 'session' ? (titleOf(group.key) ?? group.key) : group.key,
    session: by === 'session' ? group.key : null,
    calls: group.calls.toLocaleString('en'),
    tokens: tokens(sizeOf(group)),
    cost: costOf(group),
    share: most > 0 ? (measure(group) / most) * 100 : 0,
  }));
}

function sizeOf(group: Pick<Group, 'input' | 'output'>): number {
  return group.input + group.output;
}

/** What is partly a guess has a tilde; what nobody knows the price of is not called free. */
export function costOf(sums: Pick<Group, 'cost_usd' | 'estimated' | 'unpriced' | 'calls'>): string {
  if (sums.cost_usd === 0 && sums.unpriced > 0) return sums.unpriced === sums.calls ? 'no price known' : '$0';
  return `${sums.estimated > 0 ? '~' : ''}${cost(sums.cost_usd)}`;
}

export function remarksOf(total: UsageReport['total']): string[] {
  return [
    total.estimated > 0 ? `~ is partly a guess: of ${count(total.estimated, 'call')} the provider did not say all counts.` : '',
    total.unpriced > 0 ? `${count(total.unpriced, 'call')} count as nothing: the model is free, or nobody knows its price.` : '',
  ].filter(Boolean);
}
