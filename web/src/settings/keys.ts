/** Which providers can be used, and what the others lack. */

import type { ModelListing } from '../api/types';
import { count } from '../ui/words';

export interface ProviderKey {
  provider: string;
  usable: boolean;
  count: string;
  /** In the server's own words: which variable or library is not there. */
  missing: string;
}

export function keysOf(models: readonly Pick<ModelListing, 'id' | 'usable' | 'reason'>[]): ProviderKey[] {
  const providers = [...new Set(models.map((model) => model.id.split('/')[0]!))];
  const rows = providers.map((provider) => {
    const own = models.filter((model) => model.id.startsWith(`${provider}/`));
    return {
      provider,
      usable: own.some((model) => model.usable),
      count: count(own.filter((model) => model.usable).length, 'model'),
      missing: own.find((model) => model.reason)?.reason ?? 'not set up',
    };
  });
  return [...rows.filter((row) => row.usable), ...rows.filter((row) => !row.usable)];
}
