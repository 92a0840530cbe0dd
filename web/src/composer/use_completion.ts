/** Completions of the command or file name being typed, and the selected one. */

import { useEffect, useMemo, useState } from 'react';
import type { Client } from '../api/client';
import { type Completion, completions, type Prompt } from './commands';
import { fileCompletions, findFiles, mentionAt, type FileOwner } from './mentions';

const DEBOUNCE_MS = 100;

interface Typed {
  text: string;
  caret: number;
  off: boolean;
}

export function useCompletion({ text, caret, off }: Typed, prompts: readonly Prompt[], client: Client, owner: FileOwner | null) {
  const [dismissed, setDismissed] = useState<string | null>(null);
  const [chosen, setChosen] = useState<{ text: string; index: number }>({ text: '', index: 0 });
  const [files, setFiles] = useState<readonly string[]>([]);
  const mention = off || dismissed === text ? null : (mentionAt(text, caret)?.typed ?? null);
  const ownerKey = owner === null ? null : JSON.stringify(owner);
  useEffect(() => {
    if (mention === null || ownerKey === null) return setFiles([]);
    const controller = new AbortController();
    const timer = setTimeout(() => {
      findFiles(client, JSON.parse(ownerKey) as FileOwner, mention, { signal: controller.signal }).then(setFiles, () => undefined);
    }, DEBOUNCE_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [client, mention, ownerKey]);
  const offered = useMemo<Completion[]>(() => {
    if (off || dismissed === text) return [];
    return mention === null ? completions(text, prompts) : fileCompletions(text, caret, files.filter((file) => file.toLowerCase().includes(mention.toLowerCase())));
  }, [text, caret, off, dismissed, mention, files, prompts]);
  const selected = chosen.text === text ? Math.min(chosen.index, offered.length - 1) : 0;
  const current: Completion | undefined = offered[selected];
  return {
    offered,
    selected,
    current,
    select: (index: number) => setChosen({ text, index: (index + offered.length) % offered.length }),
    dismiss: () => setDismissed(text),
  };
}
