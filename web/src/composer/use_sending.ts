/** What Enter does: edit, run a command, or send; and everything comes back when it could not be done. */

import { useCallback, useLayoutEffect, useRef } from 'react';
import { isProblem } from '../api/client';
import { inWords } from '../api/problem';
import type { Conversation } from '../state/conversation';
import { asPart } from './attachments';
import { readLine } from './commands';
import { unfitFile } from './file_kinds';
import { joinDrafts } from './draft';
import { asNamedPart } from './named_files';
import { runCommand, type Surroundings } from './run_command';
import type { useAttachments } from './use_attachments';
import type { DraftField } from './use_draft';
import type { useModelChoice } from './use_model_choice';

const RUNNING = 'Something is running. Press Stop, then resend your change.';

interface Parts {
  conversation: Conversation;
  draft: DraftField;
  attachments: ReturnType<typeof useAttachments>;
  model: ReturnType<typeof useModelChoice>;
  around: Surroundings;
  /** The files of the workspace that go along with a text. */
  alongWith: (text: string) => Promise<string[]>;
}

export function useSending({ conversation, draft, attachments, model, around, alongWith }: Parts): () => Promise<void> {
  const { picked, sent } = model;
  // What was sent first is there first, however long its files take.
  const before = useRef<Promise<unknown>>(Promise.resolve());
  const begun = useRef<Conversation | null>(null);
  // What was typed while a session was made for it goes on there, to the last key: the page is leaving now.
  useLayoutEffect(
    () => () => {
      const { text } = draft.now();
      if (!begun.current || !text) return;
      begun.current.offer(text);
      draft.put({ text: '', editing: null });
    },
    // What a draft is asked for stays the same.
    [],
  );

  const edit = async (messageId: string) => {
    if (!draft.now().text.trim()) return;
    const handed = draft.hand();
    try {
      await conversation.edit(messageId, handed.draft.text.trim(), picked ?? undefined);
      sent(picked);
    } catch (error) {
      if (isProblem(error, 'run_in_flight')) conversation.say(RUNNING);
      draft.put({ text: joinDrafts(handed.draft.text, draft.now().text), editing: messageId });
    } finally {
      handed.settled();
    }
  };

  const send = async (text: string) => {
    const handed = draft.hand();
    const files = attachments.take();
    const named = alongWith(text);
    const earlier = before.current;
    let over = () => {};
    before.current = new Promise<void>((resolve) => (over = resolve));
    try {
      await earlier;
      const unfit = await unfitFile(files.files, model.listed);
      if (unfit !== null) {
        conversation.offer(text);
        conversation.refuse(unfit);
        throw new Error(unfit);
      }
      const parts = await Promise.all([Promise.all(files.files.map(asPart)), named.then((names) => names.map(asNamedPart))]).catch((error: unknown) => {
        conversation.offer(text);
        conversation.say(`${inWords(error)}.`);
        throw error;
      });
      await conversation.send({ text, files: parts.flat(), model: picked ?? undefined, onBegun: (made) => (begun.current = made) });
      sent(picked);
    } catch {
      // The conversation has handed the text back and says why; the files are ours to keep.
      files.give();
    } finally {
      over();
      handed.settled();
    }
  };

  const submit = async () => {
    const { text, editing } = draft.now();
    around.tell(null);
    if (editing !== null) return edit(editing);
    const line = readLine(text.trim());
    const saved = line.kind === 'unknown' ? around.host.store.get().prompts.find((prompt) => prompt.name === line.name) : undefined;
    if (saved) {
      // Its words are put where one writes, to be looked at and changed before they are sent.
      draft.put({ text: saved.text, editing: null });
    } else if (line.kind === 'unknown') {
      conversation.say(`There is no command /${line.name}; /help lists what there is. To send a text that begins with a slash, write two.`);
    } else if (line.kind === 'command') {
      const handed = draft.hand();
      await runCommand(line.name, line.rest, around)
        .catch(() => line.rest && conversation.offer(text))
        .finally(handed.settled);
    } else if (line.text || attachments.items.length) {
      await send(line.text);
    }
  };
  return useCallback(submit, [conversation, draft, attachments, picked, sent, around, alongWith]);
}
