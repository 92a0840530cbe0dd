/** The context gauge: how full the model's window is, by part, and where compaction starts. Opens the details. */

import { useEffect, useRef, useState } from 'react';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { GaugeDetails } from './gauge_details';
import { gaugeOf, gaugeText, type PartName, shortGaugeText } from './gauge_parts';

export const PART_COLORS: Record<PartName, string> = { system: 'bg-info', tools: 'bg-good', summary: 'bg-warn', history: 'bg-thread' };

export function Gauge() {
  const conversation = useThis();
  const report = useStore(conversation.store, (state) => state.context);
  const [open, setOpen] = useState(false);
  const around = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    if (!open) return;
    const outside = (event: PointerEvent) => {
      if (!around.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);

  // Reserve the space, so that nothing moves when it loads.
  if (!report) return <div className="w-16 shrink-0 @xl:w-44" />;
  const gauge = gaugeOf(report);
  return (
    <div
      ref={around}
      className="relative shrink-0"
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || !open) return;
        event.preventDefault();
        event.stopPropagation();
        setOpen(false);
        button.current?.focus();
      }}
    >
      <button
        ref={button}
        type="button"
        aria-expanded={open}
        title={gaugeText(report)}
        onClick={() => setOpen(!open)}
        className="grid w-16 gap-0.5 rounded-md px-1 py-1 hover:bg-panel @xl:w-44"
      >
        <span className={`truncate text-end text-xs whitespace-nowrap ${gauge.state === 'over' ? 'text-bad' : gauge.state === 'near' ? 'text-warn' : 'text-quiet'}`}>
          <span className="sr-only">Context. </span>
          <span className="hidden @xl:inline">{shortGaugeText(report)}</span>
          <span className="@xl:hidden">
            {report.measured ? '' : '~'}
            {gauge.percent}%
          </span>
        </span>
        <span aria-hidden="true" className="relative block h-1.5">
          <span className="absolute inset-0 flex overflow-hidden rounded-full bg-line">
            {gauge.parts.map((part) => (
              <span key={part.name} className={`h-full ${PART_COLORS[part.name]}`} style={{ width: `${part.share}%` }} />
            ))}
          </span>
          <span className="absolute -inset-y-0.5 w-0.5 -translate-x-1/2 rounded bg-ink" style={{ left: `${gauge.threshold}%` }} />
        </span>
      </button>
      {open && <GaugeDetails report={report} />}
    </div>
  );
}
