/** The details of the context gauge. */

import type { ContextReport } from '../api/types';
import { tokens } from '../ui/format';
import { PART_COLORS } from './gauge';
import { gaugeOf, PART_LABELS, type PartName } from './gauge_parts';

export function GaugeDetails({ report }: { report: ContextReport }) {
  const { percent, state } = gaugeOf(report);
  return (
    <div role="region" aria-label="Context breakdown" className="absolute top-full right-0 z-30 mt-1 grid w-64 gap-2 rounded-lg border border-line bg-raised p-3 text-sm shadow-lg">
      <p>
        {report.measured ? '' : 'About '}
        <strong>{report.used.toLocaleString('en')}</strong> of {report.limit.toLocaleString('en')} tokens, {percent}%
      </p>
      <dl className="grid gap-1">
        {(Object.keys(PART_LABELS) as PartName[]).map((name) => (
          <div key={name} className="flex items-center gap-2">
            <dt className="flex flex-1 items-center gap-2">
              <span aria-hidden="true" className={`size-2.5 rounded-sm ${PART_COLORS[name]}`} />
              {PART_LABELS[name]}
            </dt>
            <dd className="tabular-nums">{report.parts[name].toLocaleString('en')}</dd>
          </div>
        ))}
        <Extra label="Saved by pruning" value={report.parts.pruned} />
        <Extra label="Reserved for the answer" value={report.reserve} />
        <Extra label="Auto-compacts at" value={report.threshold} />
      </dl>
      <p className="text-xs text-quiet">
        {state === 'over' ? 'Over the threshold: the next turn compacts first. ' : `Auto-compacts at ${tokens(report.threshold)}: older turns are summarised. `}
        {report.measured ? 'Reported by the provider.' : 'Estimated until the provider reports usage.'}
      </p>
    </div>
  );
}

function Extra({ label, value }: { label: string; value: number }) {
  return (
    <div className="flex items-center gap-2 text-quiet">
      <dt className="flex-1 ps-4.5">{label}</dt>
      <dd className="tabular-nums">{value.toLocaleString('en')}</dd>
    </div>
  );
}
