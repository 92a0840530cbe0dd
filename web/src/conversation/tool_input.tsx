/** The exact input of a call: formatted for known tools, as JSON for others. */

import { DiffLines } from '../ui/diff_lines';
import { CollapsibleText } from './collapsible_text';
import { asText, editOf, toolName, type ToolPart } from './tool_part';

/** Fields of known tools that are shown as separate texts, with their labels. */
const FIELDS: Record<string, { field: string; label: string }[]> = {
  bash: [{ field: 'command', label: 'Command' }],
  read: [{ field: 'path', label: 'Path' }],
  write: [
    { field: 'path', label: 'Path' },
    { field: 'content', label: 'Content' },
  ],
  edit: [
    { field: 'path', label: 'Path' },
    { field: 'old', label: '' },
    { field: 'new', label: '' },
  ],
  task: [{ field: 'prompt', label: 'Task' }],
};

export function ToolInput({ id, part }: { id: string; part: ToolPart }) {
  const { input } = part;
  const name = toolName(part);
  if (input === undefined) return <p className="text-sm text-quiet">No input yet.</p>;
  const known = Object.hasOwn(FIELDS, name) ? FIELDS[name] : undefined;
  const fields = input && typeof input === 'object' ? (input as Record<string, unknown>) : null;
  const edit = editOf(name, part);
  if (!known || !fields || !known.every(({ field }) => typeof fields[field] === 'string')) {
    // Not only files change: an MCP server's tool definitions do, too.
    const empty = fields !== null && Object.keys(fields).length === 0;
    return (
      <div className="grid min-w-0 gap-2">
        {!(edit && empty) && <LabelledText id={id} label="Input" text={asText(input)} />}
        {edit && <Edit edit={edit} />}
      </div>
    );
  }
  const rest = Object.fromEntries(Object.entries(fields).filter(([field]) => !known.some((one) => one.field === field)));
  return (
    <div className="grid min-w-0 gap-2">
      {known.map(({ field, label }) => label && !(edit && field === 'content') && <LabelledText key={field} id={`${id} ${field}`} label={label} text={fields[field] as string} />)}
      {edit && <Edit edit={edit} />}
      {Object.keys(rest).length > 0 && <LabelledText id={`${id} rest`} label="Other input" text={asText(rest)} />}
    </div>
  );
}

function Edit({ edit }: { edit: NonNullable<ReturnType<typeof editOf>> }) {
  return (
    <div className="min-w-0">
      <div className="mb-0.5 text-xs text-quiet">Change{edit.note && <span className={edit.note.startsWith('it will fail') ? 'text-bad' : ''}>: {edit.note}</span>}</div>
      {edit.lines.length > 0 && <DiffLines lines={edit.lines} label="Change" />}
    </div>
  );
}

export function LabelledText({ id, label, text, tone }: { id: string; label: string; text: string; tone?: 'bad' }) {
  return (
    <div className="min-w-0">
      <div className="mb-0.5 text-xs text-quiet">{label}</div>
      <CollapsibleText id={id} label={label} text={text === '' ? '(empty)' : text} tone={tone} />
    </div>
  );
}
