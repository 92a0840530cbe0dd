/** Lists providers: whether they are available, and what is missing. */

import type { ModelListing } from '../api/types';
import { count } from '../ui/format';

export interface ProviderKey {
  provider: string;
  usable: boolean;
  count: string;
  /** The server's message: which variable or library is missing. */
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
