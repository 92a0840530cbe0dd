import { describe, expect, it } from 'vitest';
import { formatRoute, parseRoute } from './route';

describe('the route', () => {
  it('survives formatting and parsing', () => {
    for (const route of [
      { session: null, message: null, side: null },
      { session: 'ses_1', message: null, side: null },
      { session: 'ses_1', message: 'a/b ?#', side: null },
      { session: 'ses_1', message: null, side: 'ses_2' },
    ]) {
      expect(parseRoute(formatRoute(route))).toEqual(route);
    }
  });

  it('ignores an unknown fragment', () => {
    expect(parseRoute('#/s/<script>')).toEqual({ session: null, message: null, side: null });
    expect(parseRoute('#/s/ses_1/m/%E0%A4%A')).toEqual({ session: 'ses_1', message: null, side: null });
    expect(parseRoute('#token=abc')).toEqual({ session: null, message: null, side: null });
  });
});
