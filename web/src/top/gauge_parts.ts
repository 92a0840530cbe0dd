/** Computes the context gauge: the parts of its bar and its labels. */

import type { ContextReport } from '../api/types';
import { tokens } from '../ui/format';

export type PartName = 'system' | 'tools' | 'summary' | 'history';

export const PART_LABELS: Record<PartName, string> = {
  system: 'System prompt',
  tools: 'Tools',
  summary: 'Summary',
  history: 'Conversation',
};

export interface GaugePart {
  name: PartName;
  tokens: number;
  /** Percentage of the bar. */
  share: number;
}

export interface Gauge {
  parts: GaugePart[];
  /** Position at which older turns are compacted automatically, in percent of the bar. */
  threshold: number;
  /** Percentage of the limit; over 100 if it does not fit. */
  percent: number;
  state: 'room' | 'near' | 'over';
}

/** Compute the gauge. The bar covers the window, or the usage if that is larger; parts are scaled to the usage. */
export function gaugeOf(report: ContextReport): Gauge {
  const { limit, used, threshold } = report;
  const length = Math.max(limit, used, 1);
  const names = Object.keys(PART_LABELS) as PartName[];
  const sum = names.reduce((total, name) => total + report.parts[name], 0);
  const parts = names
    .filter((name) => report.parts[name] > 0)
    .map((name) => ({ name, tokens: report.parts[name], share: ((report.parts[name] / sum) * used * 100) / length }));
  const percent = limit > 0 ? Math.round((used / limit) * 100) : 0;
  const state = used > threshold ? 'over' : used > threshold * 0.85 ? 'near' : 'room';
  return { parts, threshold: Math.min(100, (threshold / length) * 100), percent, state };
}

/** Return “12k of 200k”, or “about 12k of 200k” for an estimate. */
export function shortGaugeText(report: ContextReport): string {
  return `${report.measured ? '' : 'about '}${tokens(report.used)} of ${tokens(report.limit)}`;
}

export function gaugeText(report: ContextReport): string {
  const { percent } = gaugeOf(report);
  const saved = report.parts.pruned > 0 ? ` Pruning saves ${tokens(report.parts.pruned)}.` : '';
  return `${report.measured ? 'The' : 'Estimate: the'} next request uses ${tokens(report.used)} of ${tokens(report.limit)} tokens (${percent}%). Auto-compacts at ${tokens(report.threshold)}.${saved}`;
}
