/** Slash commands: their table, parsing and completion. */

export const COMMANDS = [
  { name: 'rewind', usage: '[N]', help: 'Rewind to before your last message, or your Nth last one' },
  { name: 'unrewind', usage: '', help: 'Undo the last rewind' },
  { name: 'compare', usage: '[N]', help: 'Compare this version with another one' },
  { name: 'branch', usage: '', help: 'Continue in a copy of this conversation' },
  { name: 'compact', usage: '[FOCUS]', help: 'Summarise older turns, with an optional focus' },
  { name: 'prune', usage: '', help: 'Replace older tool outputs with stubs for the model' },
  { name: 'model', usage: '[MODEL]', help: 'Choose the model for the next message' },
  { name: 'mode', usage: '[MODE]', help: 'Set the permission mode: ask, accept_edits or read_only' },
  { name: 'rules', usage: '', help: 'Show the permission rules in force' },
  { name: 'queue', usage: '[HOW]', help: 'Show the queue; HOW is cancel N, now N, pause or go on' },
  { name: 'abort', usage: '', help: 'Stop the running turn, or deny the pending request' },
  { name: 'continue', usage: '[again]', help: 'Continue after a failure, a stop or the step limit, or retry the prompt' },
  { name: 'title', usage: 'TEXT', help: 'Set the title of the session' },
  { name: 'new', usage: '', help: 'Start a new session' },
  { name: 'archive', usage: '', help: 'Archive the session, or unarchive it' },
  { name: 'sidecar', usage: '', help: 'Ask in a side chat: a copy that is not listed' },
  { name: 'tree', usage: '', help: 'Show all turns as a graph' },
  { name: 'reflog', usage: '', help: 'Show every turn, rewind and jump, newest first' },
  { name: 'changes', usage: '', help: 'Show what the session changed in its folder' },
  { name: 'pin', usage: '', help: 'Pin the session to the top of the list, or unpin it' },
  { name: 'save', usage: 'NAME TEXT', help: 'Save a prompt; /NAME inserts it' },
  { name: 'settings', usage: '', help: 'Models, keys, defaults, appearance, saved prompts' },
  { name: 'spend', usage: '', help: 'Usage by day, model, session and folder' },
  { name: 'context', usage: '', help: 'Show how full the context window is' },
  { name: 'help', usage: '', help: 'Show all commands and keys' },
] as const;

export type Command = (typeof COMMANDS)[number];
export type CommandName = Command['name'];

export type Line =
  | { kind: 'text'; text: string }
  | { kind: 'command'; name: CommandName; rest: string }
  | { kind: 'unknown'; name: string };

/** Parse a line. Two slashes escape a text that begins with one. */
export function readLine(text: string): Line {
  if (text.startsWith('//')) return { kind: 'text', text: text.slice(1) };
  const found = /^\/(\S*)\s*([\s\S]*)$/.exec(text);
  if (!found) return { kind: 'text', text };
  const name = found[1]!.toLowerCase();
  const command = COMMANDS.find((known) => known.name === name);
  if (!command) return { kind: 'unknown', name: found[1]! };
  return { kind: 'command', name: command.name, rest: found[2]!.trim() };
}

/** A saved prompt. */
export interface Prompt {
  name: string;
  text: string;
}

/** One completion of the typed text. */
export interface Completion {
  key: string;
  /** Shown in the list: the completion, its arguments and a description. */
  head: string;
  usage: string;
  help: string;
  /** The text of the field after completion, and the position of the caret. */
  text: string;
  caret: number;
  /** Whether it is complete, so that Enter runs it. */
  ready: boolean;
}

/** Return the commands and saved prompts that complete a partly typed name. */
export function completions(text: string, prompts: readonly Prompt[] = []): Completion[] {
  const found = /^\/([a-zA-Z0-9-]*)$/.exec(text);
  if (!found) return [];
  const typed = found[1]!.toLowerCase();
  const commands = COMMANDS.filter((command) => command.name.startsWith(typed)).map((command): Completion => {
    const whole = command.usage ? `/${command.name} ` : `/${command.name}`;
    const ready = typed === command.name && (command.usage === '' || command.usage.startsWith('['));
    return { key: command.name, head: `/${command.name}`, usage: command.usage, help: command.help, text: whole, caret: whole.length, ready };
  });
  const saved = prompts.filter((prompt) => prompt.name.startsWith(typed) && !COMMANDS.some((command) => command.name === prompt.name));
  return [...commands, ...saved.map((prompt): Completion => ({ key: `prompt ${prompt.name}`, head: `/${prompt.name}`, usage: '', help: prompt.text.replace(/\s+/g, ' ').slice(0, 80), text: prompt.text, caret: prompt.text.length, ready: false }))];
}

/** Parse a positive number; return null if it is not one. */
export function ordinal(word: string): number | null {
  return /^[1-9][0-9]{0,5}$/.test(word) ? Number(word) : null;
}
