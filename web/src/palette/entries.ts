/** What the palette can lead to or do, in groups, as far as it fits what was typed. */

import { beginNew, beginSearch } from '../frame/shortcuts';
import { COMMANDS } from '../composer/commands';
import type { Session } from '../api/types';
import type { HostState } from '../state/host';
import { goTo } from '../state/route';
import { toggleList, view } from '../state/view';
import type { Found } from '../sidebar/use_search';
import { pieces } from '../sidebar/snippet';
import type { IconName } from '../ui/icon';
import { best } from './fuzzy';
import { wanted } from './wanted';

export interface Entry {
  key: string;
  words: string;
  note: string;
  icon: IconName;
  act: () => void;
}

export interface Group {
  name: string;
  entries: Entry[];
}

const MOST = { sessions: 7, commands: 7, prompts: 5, models: 5, messages: 8 };

const PAGE: Entry[] = [
  { key: 'new', words: 'New session', note: 'Ctrl J', icon: 'plus', act: beginNew },
  { key: 'search', words: 'Search all sessions', note: 'Ctrl Shift F', icon: 'search', act: beginSearch },
  { key: 'settings', words: 'Settings: models, keys, MCP servers, look', note: '', icon: 'sliders', act: () => view.set({ opened: 'settings' }) },
  { key: 'spend', words: 'What was spent', note: '', icon: 'coins', act: () => view.set({ opened: 'spend' }) },
  { key: 'import', words: 'Import sessions: Claude Code, Codex, pi, opencode', note: '', icon: 'file', act: () => view.set({ opened: 'import' }) },
  { key: 'triggers', words: 'Triggers: schedules and webhooks', note: '', icon: 'clock', act: () => view.set({ opened: 'triggers' }) },
  { key: 'help', words: 'Commands and keys', note: '', icon: 'menu', act: () => view.set({ opened: 'help' }) },
  { key: 'list', words: 'List of sessions, in sight or out of it', note: 'Ctrl B', icon: 'menu', act: toggleList },
  { key: 'inspector', words: 'Inspector', note: 'Ctrl I', icon: 'panel', act: () => view.set(({ inspector }) => ({ inspector: !inspector })) },
  { key: 'light', words: 'Light theme', note: '', icon: 'sun', act: () => view.set({ theme: 'light' }) },
  { key: 'dark', words: 'Dark theme', note: '', icon: 'moon', act: () => view.set({ theme: 'dark' }) },
  { key: 'system', words: 'Theme as the system says', note: '', icon: 'auto', act: () => view.set({ theme: 'system' }) },
  { key: 'compact density', words: 'Compact density', note: '', icon: 'compact', act: () => view.set({ density: 'compact' }) },
  { key: 'comfortable density', words: 'Comfortable density', note: '', icon: 'compact', act: () => view.set({ density: 'comfortable' }) },
];
/** Those of the commands that the page has under a name of its own. */
const OWN = new Set(['new', 'settings', 'spend', 'help']);

/** The group with what fits best comes first; what was said in messages is for whoever found nothing above. */
export function groupsFor(typed: string, host: HostState, found: Found | null): Group[] {
  const asked = typed.trim() !== '';
  const text = (entry: Entry) => `${entry.words} ${entry.note}`;
  const sessions = best(typed, host.sessions, (session) => `${session.title ?? 'Untitled'} ${folderOf(session)}`, MOST.sessions).map(({ one, score }) => ({ one: sessionEntry(one), score }));
  const known = new Set(sessions.map(({ one }) => one.key));
  const titles = (found?.titles ?? []).filter((session) => !known.has(session.id)).map((session) => ({ one: sessionEntry(session), score: 0 }));
  const groups = [
    { name: 'Sessions', found: [...sessions, ...titles] },
    { name: 'Commands', found: best(typed, asked ? [...PAGE, ...commandEntries()] : PAGE, text, asked ? MOST.commands : PAGE.length) },
    { name: 'Saved prompts', found: best(typed, host.prompts.map(promptEntry), text, MOST.prompts) },
    { name: 'Models', found: asked ? best(typed, host.models.filter((model) => model.usable).map(({ id }) => modelEntry(id)), (entry) => entry.words, MOST.models) : [] },
  ].map((group) => ({ ...group, top: group.found[0]?.score ?? 0 }));
  const messages = (found?.hits ?? []).slice(0, MOST.messages).map((hit): Entry => ({
    key: `message ${hit.part_id}`,
    words: pieces(hit.snippet, found?.query ?? '').map((piece) => piece.text).join(''),
    note: hit.title ?? 'Untitled',
    icon: 'search',
    act: () => goTo({ session: hit.session_id, message: hit.message_id }),
  }));
  const ordered = groups.toSorted((a, b) => b.top - a.top).map(({ name, found: some }): Group => ({ name, entries: some.map(({ one }) => one) }));
  return [...ordered, { name: 'Messages', entries: messages }].filter((group) => group.entries.length > 0);
}

function folderOf(session: Pick<Session, 'workspace_root'>): string {
  return session.workspace_root?.split(/[\\/]/).filter(Boolean).at(-1) ?? '';
}

function sessionEntry(session: Session): Entry {
  const note = session.archived_at === null ? folderOf(session) : 'archived';
  return { key: session.id, words: session.title || 'Untitled', note, icon: session.pinned ? 'pin' : 'branch', act: () => goTo({ session: session.id }) };
}

function commandEntries(): Entry[] {
  return COMMANDS.filter((command) => !OWN.has(command.name)).map((command) => ({
    key: `/${command.name}`,
    words: command.help,
    note: `/${command.name}`,
    icon: 'chevron',
    act: () => wanted.set({ wanted: { kind: 'command', name: command.name } }),
  }));
}

function promptEntry({ name, text }: { name: string; text: string }): Entry {
  const note = text.replace(/\s+/g, ' ').slice(0, 60);
  return { key: `prompt ${name}`, words: name, note, icon: 'edit', act: () => wanted.set({ wanted: { kind: 'text', text } }) };
}

function modelEntry(name: string): Entry {
  return { key: `model ${name}`, words: name, note: 'for the next message', icon: 'thought', act: () => wanted.set({ wanted: { kind: 'model', name } }) };
}
