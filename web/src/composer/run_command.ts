/** What each slash command does. */

import { isProblem } from '../api/client';
import { inWords } from '../api/problem';
import type { Conversation } from '../state/conversation';
import { compareVersions } from '../compare/compare';
import { isLive } from '../state/open_session';
import { versionsIn } from '../state/rewound';
import { beginNew } from '../frame/shortcuts';
import type { Host } from '../state/host';
import { goTo } from '../state/route';
import { UNBEGUN } from '../state/unbegun';
import { view } from '../state/view';
import { gaugeWords } from '../top/gauge_parts';
import { branchHere, openSidecar } from '../top/sidecar';
import { textOf } from '../api/types';
import { type CommandName, ordinal } from './commands';
import { isName } from './model_choice';

export interface Surroundings {
  conversation: Conversation;
  host: Host;
  chooseModel: (name: string) => void;
  openModels: () => void;
  openHelp: () => void;
  /** Says something that is no refusal. */
  tell: (words: string | null) => void;
}

type Run = (around: Surroundings, rest: string) => Promise<void> | void;

const RUNS: Record<CommandName, Run> = {
  rewind: ({ conversation }, rest) => {
    const spoken = conversation.chat.messages.filter((message) => message.role === 'user' && !message.metadata?.synthetic);
    const back = rest ? ordinal(rest) : 1;
    if (back === null) return conversation.say('Write /rewind, or /rewind and how many of your messages to go back.');
    const message = spoken.at(-back);
    if (!message) return conversation.say(spoken.length ? `Only ${spoken.length} of your messages are in sight.` : 'There is nothing to take back yet.');
    return conversation.rewind(message.id);
  },
  unrewind: async ({ conversation }) => {
    try {
      await conversation.unrewind();
    } catch (error) {
      if (!isProblem(error, 'newer_turns')) throw error;
      conversation.say('The conversation went on since that rewind. Un-rewind on its line brings it back, or pick a turn in /reflog.');
    }
  },
  compare: ({ conversation }, rest) => {
    const newest = conversation.chat.messages.findLast((message) => versionsIn(conversation.store.get().tree).has(message.id));
    if (!newest) return conversation.say('There is one version of this. Edit a message, or have it answered again, to make another.');
    const number = rest ? (ordinal(rest) ?? 0) - 1 : undefined;
    if (!compareVersions(conversation, newest.id, number)) conversation.say(`There is no other version ${rest}.`);
  },
  branch: async ({ conversation }) => {
    const session = await branchHere(conversation);
    if (session) goTo({ session: session.id });
  },
  compact: ({ conversation }, rest) => conversation.compact(rest || undefined),
  prune: ({ conversation }) => conversation.prune(),
  model: ({ conversation, chooseModel, openModels, host, tell }, rest) => {
    if (!rest) return openModels();
    const known = host.store.get().models.find((model) => model.id === rest || model.id.endsWith(`/${rest}`));
    const name = known?.id ?? rest;
    if (!isName(name)) return conversation.say(`There is no model “${rest}”. Write provider/model, or /model alone to pick one.`);
    if (known && !known.usable) return conversation.say(`${known.id} cannot be used: ${known.reason ?? 'it is not set up'}.`);
    chooseModel(name);
    tell(`The next message goes to ${name}.`);
  },
  mode: async ({ conversation, tell }, rest) => {
    if (rest === '') return tell(`The mode is ${conversation.store.get().session?.mode ?? 'ask'}.`);
    const mode = (['ask', 'accept_edits', 'read_only'] as const).find((known) => known === rest);
    if (!mode) return conversation.say(`There is no mode “${rest}”: ask, accept_edits or read_only.`);
    await conversation.setMode(mode);
    tell(`The mode is ${mode} from now on.`);
  },
  rules: () => view.set({ inspector: true, tab: 'rules' }),
  queue: ({ conversation, tell }, rest) => {
    const { queue } = conversation.store.get();
    const [word, number] = rest.split(/\s+/);
    if (word === 'pause' && queue.length === 0) return tell('Nothing waits, so nothing is paused.');
    if (word === 'pause' || rest === 'go on') return conversation.pauseQueue(word === 'pause');
    if (word === 'cancel' || word === 'now') {
      const message = queue[(ordinal(number ?? '1') ?? 0) - 1];
      if (!message) return conversation.say('There is no such message in the queue.');
      return word === 'now' ? conversation.sendQueued(message.id) : conversation.cancelQueued(message.id);
    }
    if (rest) return conversation.say('Write /queue, or cancel N, now N, pause or go on behind it.');
    const first = queue[0];
    if (!first) return tell('Nothing waits.');
    const words = textOf(first).slice(0, 60);
    tell(`${queue.length === 1 ? 'One message waits' : `${queue.length} messages wait, the next one`}: ${words || 'files'}`);
  },
  abort: ({ conversation, tell }) => {
    const { status } = conversation.store.get();
    if (!isLive(status) && !conversation.streaming && !status.waiting?.length) return tell('Nothing is running.');
    return conversation.abort();
  },
  continue: ({ conversation }, rest) => conversation.goOn(rest === 'again' ? 'again' : 'on'),
  title: ({ conversation }, rest) => (rest ? conversation.patch({ title: rest }) : conversation.say('Write the title behind /title.')),
  new: () => beginNew(),
  archive: async ({ conversation, host, tell }) => {
    const archived = conversation.store.get().session?.archived_at === null;
    await host.archive(conversation.id, archived);
    tell(archived ? 'Archived. “Show archived” lists it, /archive brings it back.' : 'Back in the list.');
  },
  sidecar: async ({ conversation }) => openSidecar(conversation),
  tree: () => view.set({ inspector: true, tab: 'tree' }),
  reflog: () => view.set({ inspector: true, tab: 'reflog' }),
  pin: async ({ conversation, host, tell }) => {
    const pinned = host.session(conversation.id)?.pinned ?? conversation.store.get().session?.pinned ?? false;
    await host.pin(conversation.id, !pinned);
    tell(pinned ? 'Pinned no more.' : 'Pinned: it stands at the top of the list.');
  },
  save: async ({ conversation, host, tell }, rest) => {
    const [, name, text] = /^(\S+)\s+([\s\S]+)$/.exec(rest) ?? [];
    if (!name || !text) return conversation.say('Write /save, a name, and the text to keep.');
    await host.client.call('POST /api/prompts', { body: { name: name.toLowerCase(), text } }).catch((error: unknown) => {
      conversation.say(`${inWords(error)}.`);
      throw error;
    });
    await host.loadPrompts();
    tell(`Saved: /${name.toLowerCase()} brings it back, here and in the chat of a terminal.`);
  },
  settings: () => view.set({ opened: 'settings' }),
  spend: () => view.set({ opened: 'spend' }),
  context: async ({ conversation, tell }) => {
    await conversation.refreshContext();
    const { context } = conversation.store.get();
    tell(context ? gaugeWords(context) : 'The size of the context is not known yet.');
  },
  help: ({ openHelp }) => openHelp(),
};

/** What depends on what was read: a command typed as soon as the page is there must not take that for an empty session. */
const READING: ReadonlySet<CommandName> = new Set(['rewind', 'compare', 'branch', 'mode', 'queue', 'abort', 'archive', 'sidecar']);

/** What can be done before there is a session. */
const BEFORE: ReadonlySet<CommandName> = new Set(['model', 'mode', 'new', 'save', 'settings', 'spend', 'help']);

/** A refusal has been said by whoever was asked; it is thrown on, so that the caller knows. */
export async function runCommand(name: CommandName, rest: string, around: Surroundings): Promise<void> {
  around.conversation.say(null);
  around.tell(null);
  if (around.conversation.id === UNBEGUN && !BEFORE.has(name)) return around.conversation.say(`Nothing was said yet: /${name} works on a session, and your first message begins one.`);
  if (READING.has(name)) await around.conversation.whenLoaded();
  await RUNS[name](around, rest);
}
