/** What the server answers to a question, asked again when the question or the time changes. */

import { useEffect, useState } from 'react';
import type { Answer, Asked, Operation } from '../api/client';
import { inWords } from '../api/problem';
import { useHost } from './host';

export interface Answered<T> {
  answer: T | null;
  error: string | null;
}

/**
 * `asked` null asks nothing. `version` is anything that changes when the answer may have: it is asked again then, and the
 * old answer stays until the new one is there.
 */
export function useAnswer<K extends Operation>(operation: K, asked: Asked<K> | null, version: unknown = null): Answered<Answer<K>> {
  const host = useHost();
  const question = asked === null ? null : JSON.stringify([operation, asked.path, asked.query]);
  const [state, setState] = useState<Answered<Answer<K>> & { question: string | null }>({ question: null, answer: null, error: null });
  useEffect(() => {
    if (question === null || asked === null) return;
    const controller = new AbortController();
    host.client.call(operation, { ...asked, signal: controller.signal }).then(
      (answer) => setState({ question, answer, error: null }),
      (error: unknown) => {
        if (!controller.signal.aborted) setState({ question, answer: null, error: inWords(error) });
      },
    );
    return () => controller.abort();
    // The question says all that matters of `asked`.
  }, [host, operation, question, version]);
  return state.question === question && question !== null ? state : { answer: null, error: null };
}
