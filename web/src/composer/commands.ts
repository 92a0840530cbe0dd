/** Slash commands: a table, how a line is read, and what a beginning could become. */

export const COMMANDS = [
  { name: 'rewind', usage: '[N]', help: 'Take back your last message, or your Nth last one' },
  { name: 'unrewind', usage: '', help: 'Undo the newest rewind' },
  { name: 'compare', usage: '[N]', help: 'What you see beside another version of it' },
  { name: 'branch', usage: '', help: 'Go on in a copy of this conversation' },
  { name: 'compact', usage: '[FOCUS]', help: 'Summarise the older turns; the focus is kept in it' },
  { name: 'prune', usage: '', help: 'Show the model stubs in place of older tool outputs' },
  { name: 'model', usage: '[MODEL]', help: 'Pick the model of the next message' },
  { name: 'mode', usage: '[MODE]', help: 'How freely it works: ask, accept_edits or read_only' },
  { name: 'rules', usage: '', help: 'The rules in force here' },
  { name: 'queue', usage: '[HOW]', help: 'Say what waits; HOW is cancel N, now N, pause or go on' },
  { name: 'abort', usage: '', help: 'Stop what runs, or deny what waits for you' },
  { name: 'continue', usage: '[again]', help: 'Go on after a failure, a stop or the step limit, or ask the same again' },
  { name: 'title', usage: 'TEXT', help: 'Give the session a title' },
  { name: 'new', usage: '', help: 'Begin a new session' },
  { name: 'archive', usage: '', help: 'Put the session out of sight, or back' },
  { name: 'sidecar', usage: '', help: 'Ask beside the conversation, in a copy that is not listed' },
  { name: 'tree', usage: '', help: 'Every turn as a graph' },
  { name: 'reflog', usage: '', help: 'Every move of the conversation, newest first' },
  { name: 'pin', usage: '', help: 'Keep the session at the top of the list, or no more' },
  { name: 'save', usage: 'NAME TEXT', help: 'Keep a text as a saved prompt: /NAME brings it back' },
  { name: 'settings', usage: '', help: 'Models, keys, defaults, look, saved prompts' },
  { name: 'spend', usage: '', help: 'What was spent, by day, model, session and folder' },
  { name: 'context', usage: '', help: 'How full the window is' },
  { name: 'help', usage: '', help: 'This list, and the keys' },
] as const;

export type Command = (typeof COMMANDS)[number];
export type CommandName = Command['name'];

export type Line =
  | { kind: 'text'; text: string }
  | { kind: 'command'; name: CommandName; rest: string }
  | { kind: 'unknown'; name: string };

/** Two slashes send a text that begins with one. */
export function readLine(text: string): Line {
  if (text.startsWith('//')) return { kind: 'text', text: text.slice(1) };
  const found = /^\/(\S*)\s*([\s\S]*)$/.exec(text);
  if (!found) return { kind: 'text', text };
  const name = found[1]!.toLowerCase();
  const command = COMMANDS.find((known) => known.name === name);
  if (!command) return { kind: 'unknown', name: found[1]! };
  return { kind: 'command', name: command.name, rest: found[2]!.trim() };
}

/** Words that were saved under a name. */
export interface Prompt {
  name: string;
  text: string;
}

/** One thing that what is typed could become. */
export interface Completion {
  key: string;
  /** As it is listed: itself, how it goes on, and a word about it. */
  head: string;
  usage: string;
  help: string;
  /** The whole text of the field once it is picked, and where the caret is then. */
  text: string;
  caret: number;
  /** Whether it is whole and needs nothing more: then Enter runs it. */
  ready: boolean;
}

/** The commands, and the saved prompts, that a text could become while its name is still being typed. */
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

/** A number from 1 on, as a command takes it; null when it is none. */
export function ordinal(word: string): number | null {
  return /^[1-9][0-9]{0,5}$/.test(word) ? Number(word) : null;
}
