/** One act at a time on a list that is read again after it; a refusal in words. */

import { useState } from 'react';
import { inWords } from '../api/problem';

export function useActing() {
  const [version, setVersion] = useState(0);
  const [error, setError] = useState<string | null>(null);
  const act = async (what: () => Promise<unknown>): Promise<boolean> => {
    setError(null);
    try {
      await what();
      return true;
    } catch (refused) {
      setError(inWords(refused));
      return false;
    } finally {
      setVersion((before) => before + 1);
    }
  };
  return { version, error, act };
}
