/** Searches messages and titles of all sessions while typing. */

import { useCallback, useEffect, useRef, useState } from 'react';
import { errorText, Problem, Unreachable } from '../api/problem';
import type { SearchHit, Session } from '../api/types';
import { useHost } from '../state/host';

const DEBOUNCE_MS = 200;
/** Interval for repeating a search while the index is being built. */
const REPEAT_MS = 1000;
const PAGE = 20;
const MAX_TITLES = 5;

export interface SearchResponse {
  /** The query of these results; the field may have changed since. */
  query: string;
  titles: Session[];
  hits: SearchHit[];
  next: string | null;
  /** False while some messages are not indexed yet. */
  complete: boolean;
  problem: string | null;
}

export function useSearch(text: string): { found: SearchResponse | null; searching: boolean; more: () => void } {
  const host = useHost();
  const query = text.trim();
  const [found, setFound] = useState<SearchResponse | null>(null);
  const [searching, setSearching] = useState(false);
  const running = useRef<AbortController | null>(null);

  useEffect(() => {
    running.current?.abort();
    if (!query) {
      setFound(null);
      setSearching(false);
      return;
    }
    const controller = new AbortController();
    running.current = controller;
    const { signal } = controller;
    setSearching(true);
    let timer: ReturnType<typeof setTimeout>;
    const ask = async () => {
      const [titles, page] = await Promise.allSettled([
        host.client.call('GET /api/sessions', { query: { q: query, limit: MAX_TITLES, kind: 'chat', archived: true, ephemeral: true }, signal }),
        host.client.call('GET /api/search', { query: { q: query, limit: PAGE }, signal }),
      ]);
      if (signal.aborted) return;
      setSearching(false);
      setFound({
        query,
        titles: titles.status === 'fulfilled' ? [...titles.value.sessions] : [],
        hits: page.status === 'fulfilled' ? [...page.value.hits] : [],
        next: page.status === 'fulfilled' ? page.value.next_cursor : null,
        complete: page.status === 'rejected' || page.value.complete !== false,
        problem: page.status === 'rejected' ? sentence(page.reason) : null,
      });
      if (page.status === 'fulfilled' && page.value.complete === false) timer = setTimeout(ask, REPEAT_MS);
    };
    timer = setTimeout(ask, DEBOUNCE_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [host, query]);

  const more = useCallback(() => {
    const signal = running.current?.signal;
    if (!found?.next || searching) return;
    setSearching(true);
    host.client
      .call('GET /api/search', { query: { q: found.query, limit: PAGE, cursor: found.next }, signal })
      .then(
        (page) => setFound({ ...found, hits: [...found.hits, ...page.hits], next: page.next_cursor }),
        (error) => !signal?.aborted && setFound({ ...found, problem: sentence(error) }),
      )
      .finally(() => !signal?.aborted && setSearching(false));
  }, [host, found, searching]);

  return { found: found && query ? found : null, searching, more };
}

function sentence(error: unknown): string {
  if (error instanceof Unreachable) return 'The server cannot be reached. Search again when it is back.';
  // The query has no word yet.
  if (error instanceof Problem && error.code === 'invalid_input') return 'Type a word with at least one letter or digit.';
  return `${errorText(error)}.`;
}
