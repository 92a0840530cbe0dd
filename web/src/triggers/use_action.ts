/** Runs an action on a list, reloads the list, and holds the error. */

import { useState } from 'react';
import { errorText } from '../api/problem';

export function useAction() {
  const [version, setVersion] = useState(0);
  const [error, setError] = useState<string | null>(null);
  const act = async (what: () => Promise<unknown>): Promise<boolean> => {
    setError(null);
    try {
      await what();
      return true;
    } catch (refused) {
      setError(errorText(refused));
      return false;
    } finally {
      setVersion((before) => before + 1);
    }
  };
  return { version, error, act };
}
