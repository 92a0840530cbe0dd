/** Tokens by kind. The kinds add up to the total. */

import type { StepReport } from '@clew/client';

const KINDS = [
  ['input', 'Input'],
  ['cache_read', 'Cache read'],
  ['cache_write', 'Cache write'],
  ['output', 'Output'],
  ['reasoning', 'Reasoning'],
] as const;

export function UsageTable({ steps }: { steps: StepReport[] }) {
  const sums = KINDS.map(([kind, name]) => ({ name, sum: steps.reduce((total, step) => total + (step.usage[kind] ?? 0), 0) }));
  const all = sums.reduce((total, { sum }) => total + sum, 0);
  return (
    <table className="w-full text-sm">
      <caption className="sr-only">Tokens of this turn</caption>
      <tbody>
        {sums.map(({ name, sum }) => (
          <tr key={name} className="border-b border-line">
            <th scope="row" className="py-1 text-left font-normal text-quiet">
              {name}
            </th>
            <td className="py-1 text-right tabular-nums">{sum.toLocaleString('en')}</td>
          </tr>
        ))}
        <tr>
          <th scope="row" className="py-1 text-left font-medium">
            Total tokens
          </th>
          <td className="py-1 text-right font-medium tabular-nums">{all.toLocaleString('en')}</td>
        </tr>
      </tbody>
    </table>
  );
}
