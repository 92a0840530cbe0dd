/** The palette entry selected for the open conversation; its composer runs it. */

import { Store } from '../state/store';

export type PaletteRequest = { kind: 'command'; name: string } | { kind: 'model'; name: string } | { kind: 'text'; text: string };

export const paletteRequest = new Store<{ request: PaletteRequest | null }>({ request: null });
