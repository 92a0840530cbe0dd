/** The entries of the palette that match the typed text, in groups. */

import { startNewSession, openSearch } from '../frame/shortcuts';
import { COMMANDS } from '../composer/commands';
import type { Session } from '../api/types';
import type { HostState } from '../state/host';
import { goTo } from '../state/route';
import { toggleList, view } from '../state/view';
import type { SearchResponse } from '../sidebar/use_search';
import { pieces } from '../sidebar/snippet';
import type { IconName } from '../ui/icon';
import { best } from './fuzzy';
import { paletteRequest } from './requested';

export interface Entry {
  key: string;
  label: string;
  note: string;
  icon: IconName;
  act: () => void;
}

export interface Group {
  name: string;
  entries: Entry[];
}

const LIMITS = { sessions: 7, commands: 7, prompts: 5, models: 5, messages: 8 };

const PAGE: Entry[] = [
  { key: 'new', label: 'New session', note: 'Ctrl J', icon: 'plus', act: startNewSession },
  { key: 'search', label: 'Search all sessions', note: 'Ctrl Shift F', icon: 'search', act: openSearch },
  { key: 'settings', label: 'Settings: models, keys, MCP servers, appearance', note: '', icon: 'sliders', act: () => view.set({ dialog: 'settings' }) },
  { key: 'spend', label: 'Usage', note: '', icon: 'coins', act: () => view.set({ dialog: 'spend' }) },
  { key: 'import', label: 'Import sessions: Claude Code, Codex, pi, opencode', note: '', icon: 'file', act: () => view.set({ dialog: 'import' }) },
  { key: 'triggers', label: 'Triggers: schedules and webhooks', note: '', icon: 'clock', act: () => view.set({ dialog: 'triggers' }) },
  { key: 'help', label: 'Commands and keys', note: '', icon: 'menu', act: () => view.set({ dialog: 'help' }) },
  { key: 'list', label: 'Show or hide the session list', note: 'Ctrl B', icon: 'menu', act: toggleList },
  { key: 'inspector', label: 'Show or hide the inspector', note: 'Ctrl I', icon: 'panel', act: () => view.set(({ inspector }) => ({ inspector: !inspector })) },
  { key: 'light', label: 'Light theme', note: '', icon: 'sun', act: () => view.set({ theme: 'light' }) },
  { key: 'dark', label: 'Dark theme', note: '', icon: 'moon', act: () => view.set({ theme: 'dark' }) },
  { key: 'system', label: 'System theme', note: '', icon: 'auto', act: () => view.set({ theme: 'system' }) },
  { key: 'compact density', label: 'Compact density', note: '', icon: 'compact', act: () => view.set({ density: 'compact' }) },
  { key: 'comfortable density', label: 'Comfortable density', note: '', icon: 'compact', act: () => view.set({ density: 'comfortable' }) },
];
/** Commands that are already listed above. */
const LISTED = new Set(['new', 'settings', 'spend', 'help']);

/** Return the groups, the one with the best match first and messages last. */
export function groupsFor(typed: string, host: HostState, found: SearchResponse | null): Group[] {
  const hasQuery = typed.trim() !== '';
  const text = (entry: Entry) => `${entry.label} ${entry.note}`;
  const sessions = best(typed, host.sessions, (session) => `${session.title ?? 'Untitled'} ${folderOf(session)}`, LIMITS.sessions).map(({ one, score }) => ({ one: sessionEntry(one), score }));
  const known = new Set(sessions.map(({ one }) => one.key));
  const titles = (found?.titles ?? []).filter((session) => !known.has(session.id)).map((session) => ({ one: sessionEntry(session), score: 0 }));
  const groups = [
    { name: 'Sessions', found: [...sessions, ...titles] },
    { name: 'Commands', found: best(typed, hasQuery ? [...PAGE, ...commandEntries()] : PAGE, text, hasQuery ? LIMITS.commands : PAGE.length) },
    { name: 'Saved prompts', found: best(typed, host.prompts.map(promptEntry), text, LIMITS.prompts) },
    { name: 'Models', found: hasQuery ? best(typed, host.models.filter((model) => model.usable).map(({ id }) => modelEntry(id)), (entry) => entry.label, LIMITS.models) : [] },
  ].map((group) => ({ ...group, top: group.found[0]?.score ?? 0 }));
  const messages = (found?.hits ?? []).slice(0, LIMITS.messages).map((hit): Entry => ({
    key: `message ${hit.part_id}`,
    label: pieces(hit.snippet, found?.query ?? '').map((piece) => piece.text).join(''),
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
  return { key: session.id, label: session.title || 'Untitled', note, icon: session.pinned ? 'pin' : 'branch', act: () => goTo({ session: session.id }) };
}

function commandEntries(): Entry[] {
  return COMMANDS.filter((command) => !LISTED.has(command.name)).map((command) => ({
    key: `/${command.name}`,
    label: command.help,
    note: `/${command.name}`,
    icon: 'chevron',
    act: () => paletteRequest.set({ request: { kind: 'command', name: command.name } }),
  }));
}

function promptEntry({ name, text }: { name: string; text: string }): Entry {
  const note = text.replace(/\s+/g, ' ').slice(0, 60);
  return { key: `prompt ${name}`, label: name, note, icon: 'edit', act: () => paletteRequest.set({ request: { kind: 'text', text } }) };
}

function modelEntry(name: string): Entry {
  return { key: `model ${name}`, label: name, note: 'for the next message', icon: 'thought', act: () => paletteRequest.set({ request: { kind: 'model', name } }) };
}
