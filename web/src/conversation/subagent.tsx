/** A subagent below the call that started it: its progress, usage, and a link to its session. */

import { formatRoute } from '../state/route';
import { cost, count, tokens } from '../ui/format';
import { subagentProgress, type ToolPart } from './tool_part';

export function Subagent({ session, part }: { session: string; part: ToolPart }) {
  const { steps, tokens: used, cost: usd, activity, tail } = subagentProgress(part);
  const metrics = [steps && count(steps, 'step'), used && `${tokens(used)} tokens`, usd && cost(usd)].filter(Boolean);
  return (
    <div role="group" aria-label="Subagent" className="grid min-w-0 gap-0.5 px-2.5 pb-2 pl-[1.85rem] text-sm">
      {activity && (
        <p dir="auto" className="truncate font-mono text-[13px] text-info">
          {activity}
        </p>
      )}
      {tail && (
        <p dir="auto" className="line-clamp-2 break-words text-quiet">
          {tail}
        </p>
      )}
      <p className="flex flex-wrap items-baseline gap-x-3 text-xs text-quiet tabular-nums">
        {metrics.length > 0 && <span>{metrics.join(' · ')}</span>}
        <a href={formatRoute({ session })} className="rounded text-sm text-thread underline underline-offset-2">
          Open the subagent’s session
        </a>
      </p>
    </div>
  );
}
