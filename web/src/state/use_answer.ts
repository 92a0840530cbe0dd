/** A query to the server, repeated when its parameters or version change. */

import { useEffect, useState } from 'react';
import type { Answer, Asked, Operation } from '../api/client';
import { errorText } from '../api/problem';
import { useHost } from './host';

export interface QueryState<T> {
  answer: T | null;
  error: string | null;
}

/**
 * Query the server. Nothing is sent while `request` is null. A new `version` repeats the query; the old response stays until the
 * new one arrives.
 */
export function useQuery<K extends Operation>(operation: K, request: Asked<K> | null, version: unknown = null): QueryState<Answer<K>> {
  const host = useHost();
  const question = request === null ? null : JSON.stringify([operation, request.path, request.query]);
  const [state, setState] = useState<QueryState<Answer<K>> & { question: string | null }>({ question: null, answer: null, error: null });
  useEffect(() => {
    if (question === null || request === null) return;
    const controller = new AbortController();
    host.client.call(operation, { ...request, signal: controller.signal }).then(
      (answer) => setState({ question, answer, error: null }),
      (error: unknown) => {
        if (!controller.signal.aborted) setState({ question, answer: null, error: errorText(error) });
      },
    );
    return () => controller.abort();
    // `question` covers all of `request`.
  }, [host, operation, question, version]);
  return state.question === question && question !== null ? state : { answer: null, error: null };
}
