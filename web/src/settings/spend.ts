/** Usage as table rows. Estimates are marked, and missing prices are stated. */

import type { UsageReport } from '@clew/client';
import { cost, count, tokens } from '../ui/format';

export type SpendGroup = 'day' | 'model' | 'session' | 'workspace';
type Group = UsageReport['groups'][number];

export interface SpendRow {
  key: string;
  name: string;
  /** The session to open, or null. */
  session: string | null;
  calls: string;
  tokens: string;
  cost: string;
  /** Percentage of the largest row. */
  share: number;
}

/** Return days newest first, everything else by cost and then by tokens. */
export function rowsOf(report: UsageReport, by: SpendGroup, titleOf: (session: string) => string | null): SpendRow[] {
  const groups = [...report.groups].sort((a, b) => (by === 'day' ? (b.key ?? '').localeCompare(a.key ?? '') : b.cost_usd - a.cost_usd || sizeOf(b) - sizeOf(a)));
  const priced = groups.some((group) => group.cost_usd > 0);
  const measure = (group: Group) => (priced ? group.cost_usd : sizeOf(group));
  const largest = Math.max(...groups.map(measure), 0);
  return groups.map((group) => ({
    key: group.key ?? '',
    name: group.key === null ? { session: 'Deleted sessions', workspace: 'No folder', day: 'No day', model: 'No model' }[by] : by === 'session' ? (titleOf(group.key) ?? group.key) : group.key,
    session: by === 'session' ? group.key : null,
    calls: group.calls.toLocaleString('en'),
    tokens: tokens(sizeOf(group)),
    cost: costOf(group),
    share: largest > 0 ? (measure(group) / largest) * 100 : 0,
  }));
}

function sizeOf(group: Pick<Group, 'input' | 'output'>): number {
  return group.input + group.output;
}

/** Format the cost; a tilde marks estimates, and an unknown price is not shown as $0. */
export function costOf(sums: Pick<Group, 'cost_usd' | 'estimated' | 'unpriced' | 'calls'>): string {
  if (sums.cost_usd === 0 && sums.unpriced > 0) return sums.unpriced === sums.calls ? 'price unknown' : '$0';
  return `${sums.estimated > 0 ? '~' : ''}${cost(sums.cost_usd)}`;
}

export function remarksOf(total: UsageReport['total']): string[] {
  return [
    total.estimated > 0 ? `~ includes estimates: usage not reported for ${count(total.estimated, 'call')}.` : '',
    total.unpriced > 0 ? `${count(total.unpriced, 'call')} not counted: the model is free, or its price is unknown.` : '',
  ].filter(Boolean);
}
