/**
 * The files mentioned in the composer, shown before they are sent. Mentions that were typed or completed are attached; those
 * in pasted text only when the user confirms.
 */

import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import type { Client } from '../api/client';
import { resolveMention, mentionAt, mentionsIn, type FileOwner } from './mentions';

const DEBOUNCE_MS = 150;

export interface Mention {
  name: string;
  attached: boolean;
}

export function useMentions(text: string, client: Client, owner: FileOwner | null) {
  const ownerKey = owner === null ? null : JSON.stringify(owner);
  const [found, setFound] = useState<ReadonlyMap<string, string | null>>(new Map());
  const [excluded, setExcluded] = useState<ReadonlySet<string>>(new Set());
  // Requests in flight, so that none is sent twice.
  const lookups = useRef(new Map<string, Promise<string | null>>());
  useEffect(() => {
    lookups.current.clear();
    setFound(new Map());
  }, [ownerKey]);

  const resolve = useCallback(
    (candidates: string[]) => {
      const key = candidates.join('\n');
      const known = lookups.current.get(key);
      if (known) return known;
      const lookup = resolveMention(client, ownerKey === null ? null : (JSON.parse(ownerKey) as FileOwner), candidates).catch(() => {
        lookups.current.delete(key);
        return null;
      });
      lookups.current.set(key, lookup);
      void lookup.then((name) => setFound((before) => new Map(before).set(key, name)));
      return lookup;
    },
    [client, ownerKey],
  );
  useEffect(() => {
    const names = mentionsIn(text);
    if (names.length === 0) {
      // Forget results when the text has no mentions: files come and go.
      lookups.current.clear();
      setFound((before) => (before.size ? new Map() : before));
      if (text === '') setExcluded((before) => (before.size ? new Set() : before));
      return;
    }
    const timer = setTimeout(() => names.forEach((candidates) => void resolve(candidates)), DEBOUNCE_MS);
    return () => clearTimeout(timer);
  }, [text, resolve]);

  const mentions = useMemo<Mention[]>(
    () => mentionsIn(text).flatMap((candidates) => {
      const name = found.get(candidates.join('\n'));
      return name ? [{ name, attached: !candidates.some((candidate) => excluded.has(candidate)) }] : [];
    }),
    [text, found, excluded],
  );
  return {
    mentions,
    /** Exclude the mentions of pasted text: the user did not type them. */
    pasted: (text: string) => setExcluded((before) => new Set([...before, ...mentionsIn(text).flat()])),
    /** Include the mention at the caret, which is being typed or completed. */
    typed: (text: string, caret: number) => {
      const name = mentionAt(text, caret)?.typed;
      if (name) setExcluded((before) => (before.has(name) ? without(before, name) : before));
    },
    toggle: (name: string, attached: boolean) => setExcluded((before) => (attached ? without(before, name) : new Set([...before, name]))),
    /** Resolve the files to attach to a text; it may be sent before the server has answered. */
    resolveMentions: async (text: string) => {
      const all = await Promise.all(mentionsIn(text).map(async (candidates) => (candidates.some((candidate) => excluded.has(candidate)) ? null : resolve(candidates))));
      return [...new Set(all.filter((name) => name !== null))];
    },
  };
}

function without(names: ReadonlySet<string>, name: string): ReadonlySet<string> {
  // The same name, with and without trailing punctuation.
  return new Set([...names].filter((one) => one !== name && one.replace(/[.,;:!?)]+$/, '') !== name));
}
