/** Runs slash commands. */

import { isProblem } from '../api/client';
import { errorText } from '../api/problem';
import type { Conversation } from '../state/conversation';
import { compareVersions } from '../compare/compare';
import { isLive } from '../state/open_session';
import { versionsIn } from '../state/rewound';
import { startNewSession } from '../frame/shortcuts';
import type { Host } from '../state/host';
import { goTo } from '../state/route';
import { DRAFT_ID } from '../state/draft_session';
import { view } from '../state/view';
import { gaugeText } from '../top/gauge_parts';
import { branchHere, openSidecar } from '../top/sidecar';
import { textOf } from '../api/types';
import { type CommandName, ordinal } from './commands';
import { isName } from './model_choice';

export interface CommandContext {
  conversation: Conversation;
  host: Host;
  chooseModel: (name: string) => void;
  openModels: () => void;
  openHelp: () => void;
  /** Show the result of a command, or clear it. */
  showResult: (text: string | null) => void;
}

type Run = (commands: CommandContext, rest: string) => Promise<void> | void;

const RUNS: Record<CommandName, Run> = {
  rewind: ({ conversation }, rest) => {
    const own = conversation.messages.filter((message) => message.role === 'user' && !message.metadata?.synthetic);
    const back = rest ? ordinal(rest) : 1;
    if (back === null) return conversation.notify('Usage: /rewind, or /rewind N to go back N of your messages.');
    const message = own.at(-back);
    if (!message) return conversation.notify(own.length ? `Only ${own.length} of your messages are loaded.` : 'Nothing to rewind yet.');
    return conversation.rewind(message.id);
  },
  unrewind: async ({ conversation }) => {
    try {
      await conversation.unrewind();
    } catch (error) {
      if (!isProblem(error, 'newer_turns')) throw error;
      conversation.notify('The conversation has continued since that rewind. Use Restore on its line, or pick a turn in /reflog.');
    }
  },
  compare: ({ conversation }, rest) => {
    const newest = conversation.messages.findLast((message) => versionsIn(conversation.store.get().tree).has(message.id));
    if (!newest) return conversation.notify('There is only one version. Edit a message or regenerate an answer to create another.');
    const number = rest ? (ordinal(rest) ?? 0) - 1 : undefined;
    if (!compareVersions(conversation, newest.id, number)) conversation.notify(`No other version ${rest}.`);
  },
  branch: async ({ conversation }) => {
    const session = await branchHere(conversation);
    if (session) goTo({ session: session.id });
  },
  compact: ({ conversation }, rest) => conversation.compact(rest || undefined),
  prune: ({ conversation }) => conversation.prune(),
  model: ({ conversation, chooseModel, openModels, host, showResult }, rest) => {
    if (!rest) return openModels();
    const known = host.store.get().models.find((model) => model.id === rest || model.id.endsWith(`/${rest}`));
    const name = known?.id ?? rest;
    if (!isName(name)) return conversation.notify(`Unknown model “${rest}”. Type provider/model, or /model to choose one.`);
    if (known && !known.usable) return conversation.notify(`${known.id} is not available: ${known.reason ?? 'not set up'}.`);
    chooseModel(name);
    showResult(`The next message uses ${name}.`);
  },
  mode: async ({ conversation, showResult }, rest) => {
    if (rest === '') return showResult(`Mode: ${conversation.store.get().session?.mode ?? 'ask'}.`);
    const mode = (['ask', 'accept_edits', 'read_only'] as const).find((known) => known === rest);
    if (!mode) return conversation.notify(`Unknown mode “${rest}”. Use ask, accept_edits or read_only.`);
    await conversation.setMode(mode);
    showResult(`Mode set to ${mode}.`);
  },
  rules: () => view.set({ inspector: true, tab: 'rules' }),
  queue: ({ conversation, showResult }, rest) => {
    const { queue } = conversation.store.get();
    const [word, number] = rest.split(/\s+/);
    if (word === 'pause' && queue.length === 0) return showResult('The queue is empty.');
    if (word === 'pause' || rest === 'go on') return conversation.pauseQueue(word === 'pause');
    if (word === 'cancel' || word === 'now') {
      const message = queue[(ordinal(number ?? '1') ?? 0) - 1];
      if (!message) return conversation.notify('No such message in the queue.');
      return word === 'now' ? conversation.sendQueued(message.id) : conversation.cancelQueued(message.id);
    }
    if (rest) return conversation.notify('Usage: /queue, or /queue with cancel N, now N, pause or go on.');
    const first = queue[0];
    if (!first) return showResult('The queue is empty.');
    const text = textOf(first).slice(0, 60);
    showResult(`${queue.length} queued. Next: ${text || 'files'}`);
  },
  abort: ({ conversation, showResult }) => {
    const { status } = conversation.store.get();
    if (!isLive(status) && !conversation.streaming && !status.waiting?.length) return showResult('Nothing is running.');
    return conversation.abort();
  },
  continue: ({ conversation }, rest) => conversation.continueTurn(rest === 'again' ? 'again' : 'on'),
  title: ({ conversation }, rest) => (rest ? conversation.patch({ title: rest }) : conversation.notify('Usage: /title TEXT.')),
  new: () => startNewSession(),
  archive: async ({ conversation, host, showResult }) => {
    const archived = conversation.store.get().session?.archived_at === null;
    await host.archive(conversation.id, archived);
    showResult(archived ? 'Archived. “Show archived” lists it; /archive restores it.' : 'Unarchived.');
  },
  sidecar: async ({ conversation }) => openSidecar(conversation),
  tree: () => view.set({ inspector: true, tab: 'tree' }),
  reflog: () => view.set({ inspector: true, tab: 'reflog' }),
  changes: () => view.set({ inspector: true, tab: 'changes' }),
  pin: async ({ conversation, host, showResult }) => {
    const pinned = host.session(conversation.id)?.pinned ?? conversation.store.get().session?.pinned ?? false;
    await host.pin(conversation.id, !pinned);
    showResult(pinned ? 'Unpinned.' : 'Pinned to the top of the list.');
  },
  save: async ({ conversation, host, showResult }, rest) => {
    const [, name, text] = /^(\S+)\s+([\s\S]+)$/.exec(rest) ?? [];
    if (!name || !text) return conversation.notify('Usage: /save NAME TEXT.');
    await host.client.call('POST /api/prompts', { body: { name: name.toLowerCase(), text } }).catch((error: unknown) => {
      conversation.notify(`${errorText(error)}.`);
      throw error;
    });
    await host.loadPrompts();
    showResult(`Saved. Type /${name.toLowerCase()} to insert it, here or in the terminal chat.`);
  },
  settings: () => view.set({ dialog: 'settings' }),
  spend: () => view.set({ dialog: 'spend' }),
  context: async ({ conversation, showResult }) => {
    await conversation.refreshContext();
    const { context } = conversation.store.get();
    showResult(context ? gaugeText(context) : 'The context size is not known yet.');
  },
  help: ({ openHelp }) => openHelp(),
};

/** Commands that need the messages: run before they are loaded, they would see an empty session. */
const NEEDS_MESSAGES: ReadonlySet<CommandName> = new Set(['rewind', 'compare', 'branch', 'mode', 'queue', 'abort', 'archive', 'sidecar']);

/** Commands that work before there is a session. */
const WITHOUT_SESSION: ReadonlySet<CommandName> = new Set(['model', 'mode', 'new', 'save', 'settings', 'spend', 'help']);

/** Run a command. Errors have been shown already; they are rethrown for the caller. */
export async function runCommand(name: CommandName, rest: string, commands: CommandContext): Promise<void> {
  commands.conversation.notify(null);
  commands.showResult(null);
  if (commands.conversation.id === DRAFT_ID && !WITHOUT_SESSION.has(name)) return commands.conversation.notify(`No session yet: send a message before using /${name}.`);
  if (NEEDS_MESSAGES.has(name)) await commands.conversation.whenLoaded();
  await RUNS[name](commands, rest);
}
