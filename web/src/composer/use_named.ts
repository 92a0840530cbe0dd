/**
 * The files that the text in the composer names, to be seen before they are sent. What was typed or picked goes along;
 * what came with a pasted text is shown, and goes along when somebody says so.
 */

import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import type { Client } from '../api/client';
import { fileNamed, nameAt, namesIn, type Whose } from './named_files';

const PAUSE_MS = 150;

export interface Named {
  name: string;
  along: boolean;
}

export function useNamed(text: string, client: Client, whose: Whose | null) {
  const asked = whose === null ? null : JSON.stringify(whose);
  const [found, setFound] = useState<ReadonlyMap<string, string | null>>(new Map());
  const [kept, setKept] = useState<ReadonlySet<string>>(new Set());
  // What is on its way is not asked for twice.
  const looking = useRef(new Map<string, Promise<string | null>>());
  useEffect(() => {
    looking.current.clear();
    setFound(new Map());
  }, [asked]);

  const look = useCallback(
    (meanings: string[]) => {
      const key = meanings.join('\n');
      const known = looking.current.get(key);
      if (known) return known;
      const looked = fileNamed(client, asked === null ? null : (JSON.parse(asked) as Whose), meanings).catch(() => {
        looking.current.delete(key);
        return null;
      });
      looking.current.set(key, looked);
      void looked.then((name) => setFound((before) => new Map(before).set(key, name)));
      return looked;
    },
    [client, asked],
  );
  useEffect(() => {
    const names = namesIn(text);
    if (names.length === 0) {
      // Nothing is known for longer than the text that asked: files come and go.
      looking.current.clear();
      setFound((before) => (before.size ? new Map() : before));
      if (text === '') setKept((before) => (before.size ? new Set() : before));
      return;
    }
    const timer = setTimeout(() => names.forEach((meanings) => void look(meanings)), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text, look]);

  const named = useMemo<Named[]>(
    () => namesIn(text).flatMap((meanings) => {
      const name = found.get(meanings.join('\n'));
      return name ? [{ name, along: !meanings.some((meaning) => kept.has(meaning)) }] : [];
    }),
    [text, found, kept],
  );
  return {
    named,
    /** A text was pasted: what it names was not typed by whoever sends it. */
    pasted: (words: string) => setKept((before) => new Set([...before, ...namesIn(words).flat()])),
    /** Somebody writes, or completes, the name that the caret is at. */
    typed: (words: string, caret: number) => {
      const name = nameAt(words, caret)?.typed;
      if (name) setKept((before) => (before.has(name) ? without(before, name) : before));
    },
    turn: (name: string, along: boolean) => setKept((before) => (along ? without(before, name) : new Set([...before, name]))),
    /** Those that go along with a text, as soon as that is known: whoever types quickly is quicker than the server. */
    alongWith: async (words: string) => {
      const all = await Promise.all(namesIn(words).map(async (meanings) => (meanings.some((meaning) => kept.has(meaning)) ? null : look(meanings))));
      return [...new Set(all.filter((name) => name !== null))];
    },
  };
}

function without(names: ReadonlySet<string>, name: string): ReadonlySet<string> {
  // With and without the sign that ends a sentence it is the same name.
  return new Set([...names].filter((one) => one !== name && one.replace(/[.,;:!?)]+$/, '') !== name));
}
