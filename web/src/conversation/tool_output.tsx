/** The output of a call: text, JSON, an error, or the answer of a subagent. */

import { Markdown } from './markdown';
import { LabelledText } from './tool_input';
import { outputText, subagentOf, type ToolPart } from './tool_part';

export function ToolOutput({ id, part }: { id: string; part: ToolPart }) {
  if (part.state === 'output-error') return <LabelledText id={`${id} error`} label="Error" text={part.errorText ?? 'Failed.'} tone="bad" />;
  if (part.state !== 'output-available') return null;
  const child = subagentOf(part);
  const answer = child ? (part.output as { text?: unknown }).text : undefined;
  if (child && typeof answer === 'string') {
    return (
      <div className="grid gap-1">
        <div className="text-xs text-quiet">Subagent’s answer</div>
        <div className="rounded-md bg-panel px-2.5 py-2 text-sm">
          <Markdown text={answer} />
        </div>
      </div>
    );
  }
  return <LabelledText id={`${id} output`} label="Output" text={outputText(part)} />;
}
