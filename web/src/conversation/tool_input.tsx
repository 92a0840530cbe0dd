/** The exact input of a call: as a person would write it where that is known, as JSON where it is not. */

import { DiffLines } from '../ui/diff_lines';
import { FoldedText } from './folded_text';
import { asText, editOf, toolName, type ToolPart } from './tool_part';

/** Which fields of the tools we know are shown as text of their own, and under which name. */
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
    // What is no file may change, too: what a server says its tools are.
    const empty = fields !== null && Object.keys(fields).length === 0;
    return (
      <div className="grid min-w-0 gap-2">
        {!(edit && empty) && <Labelled id={id} label="Input" text={asText(input)} />}
        {edit && <Edit edit={edit} />}
      </div>
    );
  }
  const rest = Object.fromEntries(Object.entries(fields).filter(([field]) => !known.some((one) => one.field === field)));
  return (
    <div className="grid min-w-0 gap-2">
      {known.map(({ field, label }) => label && !(edit && field === 'content') && <Labelled key={field} id={`${id} ${field}`} label={label} text={fields[field] as string} />)}
      {edit && <Edit edit={edit} />}
      {Object.keys(rest).length > 0 && <Labelled id={`${id} rest`} label="Also" text={asText(rest)} />}
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

export function Labelled({ id, label, text, tone }: { id: string; label: string; text: string; tone?: 'bad' }) {
  return (
    <div className="min-w-0">
      <div className="mb-0.5 text-xs text-quiet">{label}</div>
      <FoldedText id={id} label={label} text={text === '' ? '(empty)' : text} tone={tone} />
    </div>
  );
}
