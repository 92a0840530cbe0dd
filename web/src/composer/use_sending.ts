/** Handles Enter: edit, run a command, or send. On failure the text and files return to the composer. */

import { useCallback, useLayoutEffect, useRef } from 'react';
import { isProblem } from '../api/client';
import { errorText } from '../api/problem';
import type { Conversation } from '../state/conversation';
import { asPart } from './attachments';
import { readLine } from './commands';
import { findUnsupportedFile } from './file_kinds';
import { mergeDrafts } from './draft';
import { asWorkspaceFile } from './mentions';
import { runCommand, type CommandContext } from './run_command';
import type { useAttachments } from './use_attachments';
import type { DraftField } from './use_draft';
import type { useModelChoice } from './use_model_choice';

const RUNNING = 'A turn is running. Stop it, then resend your edit.';

interface Parts {
  conversation: Conversation;
  draft: DraftField;
  attachments: ReturnType<typeof useAttachments>;
  model: ReturnType<typeof useModelChoice>;
  commands: CommandContext;
  /** Resolve the workspace files to attach to a text. */
  resolveMentions: (text: string) => Promise<string[]>;
}

export function useSending({ conversation, draft, attachments, model, commands, resolveMentions }: Parts): () => Promise<void> {
  const { picked, sent } = model;
  // Keeps the order of messages, however long their files take.
  const previous = useRef<Promise<unknown>>(Promise.resolve());
  const created = useRef<Conversation | null>(null);
  // On leaving the start page, move text typed while the session was being created to its composer.
  useLayoutEffect(
    () => () => {
      const { text } = draft.now();
      if (!created.current || !text) return;
      created.current.fillComposer(text);
      draft.put({ text: '', editing: null });
    },
    // The methods of a draft are stable.
    [],
  );

  const edit = async (messageId: string) => {
    if (!draft.now().text.trim()) return;
    const detached = draft.detach();
    try {
      await conversation.edit(messageId, detached.draft.text.trim(), picked ?? undefined);
      sent(picked);
    } catch (error) {
      if (isProblem(error, 'run_in_flight')) conversation.notify(RUNNING);
      draft.put({ text: mergeDrafts(detached.draft.text, draft.now().text), editing: messageId });
    } finally {
      detached.settled();
    }
  };

  const send = async (text: string) => {
    const detached = draft.detach();
    const files = attachments.take();
    const mentioned = resolveMentions(text);
    const earlier = previous.current;
    let done = () => {};
    previous.current = new Promise<void>((resolve) => (done = resolve));
    try {
      await earlier;
      const unsupported = await findUnsupportedFile(files.files, model.listed);
      if (unsupported !== null) {
        conversation.fillComposer(text);
        conversation.notifyError(unsupported);
        throw new Error(unsupported);
      }
      const parts = await Promise.all([Promise.all(files.files.map(asPart)), mentioned.then((names) => names.map(asWorkspaceFile))]).catch((error: unknown) => {
        conversation.fillComposer(text);
        conversation.notify(`${errorText(error)}.`);
        throw error;
      });
      await conversation.send({ text, files: parts.flat(), model: picked ?? undefined, onCreated: (opened) => (created.current = opened) });
      sent(picked);
    } catch {
      // The conversation returns the text and shows why; only the files are restored here.
      files.give();
    } finally {
      done();
      detached.settled();
    }
  };

  const submit = async () => {
    const { text, editing } = draft.now();
    commands.showResult(null);
    if (editing !== null) return edit(editing);
    const line = readLine(text.trim());
    const saved = line.kind === 'unknown' ? commands.host.store.get().prompts.find((prompt) => prompt.name === line.name) : undefined;
    if (saved) {
      // Insert the prompt, to be reviewed and changed before it is sent.
      draft.put({ text: saved.text, editing: null });
    } else if (line.kind === 'unknown') {
      conversation.notify(`Unknown command /${line.name}. Type /help for commands. To send text that begins with a slash, type two.`);
    } else if (line.kind === 'command') {
      const detached = draft.detach();
      await runCommand(line.name, line.rest, commands)
        .catch(() => line.rest && conversation.fillComposer(text))
        .finally(detached.settled);
    } else if (line.text || attachments.items.length) {
      await send(line.text);
    }
  };
  return useCallback(submit, [conversation, draft, attachments, picked, sent, commands, resolveMentions]);
}
