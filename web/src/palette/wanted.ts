/** What was picked in the palette for the conversation that is open; its composer does it. */

import { Store } from '../state/store';

export type Wanted = { kind: 'command'; name: string } | { kind: 'model'; name: string } | { kind: 'text'; text: string };

export const wanted = new Store<{ wanted: Wanted | null }>({ wanted: null });
