/** The page's policy forbids eval. The AI SDK's schemas would try it out as they load, which is noted as a breach. */

import { config } from 'zod';

config({ jitless: true });
