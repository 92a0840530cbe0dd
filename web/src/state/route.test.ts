import { describe, expect, it } from 'vitest';
import { formatRoute, parseRoute } from './route';

describe('the route', () => {
  it('comes back as it was written', () => {
    for (const route of [
      { session: null, message: null, beside: null },
      { session: 'ses_1', message: null, beside: null },
      { session: 'ses_1', message: 'a/b ?#', beside: null },
      { session: 'ses_1', message: null, beside: 'ses_2' },
    ]) {
      expect(parseRoute(formatRoute(route))).toEqual(route);
    }
  });

  it('takes nothing from a fragment it does not know', () => {
    expect(parseRoute('#/s/<script>')).toEqual({ session: null, message: null, beside: null });
    expect(parseRoute('#/s/ses_1/m/%E0%A4%A')).toEqual({ session: 'ses_1', message: null, beside: null });
    expect(parseRoute('#token=abc')).toEqual({ session: null, message: null, beside: null });
  });
});
