/** The page's CSP forbids eval. Without this setting zod would test for it on load, which is reported as a violation. */

import { config } from 'zod';

config({ jitless: true });
