import { expect, test } from 'vitest';
import { cronOf, describeCron, INTERVALS, DEFAULT_WHEN } from './times';

test('a simple schedule becomes a cron expression and is described again', () => {
  const expressions = [
    { ...DEFAULT_WHEN },
    { ...DEFAULT_WHEN, frequency: 'minutes' as const },
    { ...DEFAULT_WHEN, frequency: 'minutes' as const, minutes: 1 },
    { ...DEFAULT_WHEN, frequency: 'hourly' as const, at: '00:05' },
    { ...DEFAULT_WHEN, frequency: 'weekdays' as const, at: '18:30' },
    { ...DEFAULT_WHEN, frequency: 'weekly' as const, weekday: 0 },
    { ...DEFAULT_WHEN, frequency: 'cron' as const, cron: ' 1 2 3 4 5 ' },
    { ...DEFAULT_WHEN, at: '' },
  ].map((when) => [cronOf(when), describeCron(cronOf(when))]);
  expect(expressions).toEqual([
    ['0 9 * * *', 'every day at 09:00'],
    ['*/15 * * * *', 'every 15 minutes'],
    ['* * * * *', 'every minute'],
    ['5 * * * *', 'every hour at minute 5'],
    ['30 18 * * 1-5', 'Monday to Friday at 18:30'],
    ['0 9 * * 0', 'every Sunday at 09:00'],
    ['1 2 3 4 5', '1 2 3 4 5'],
    ['', ''],
  ]);
  expect(INTERVALS.every((minutes) => 60 % minutes === 0)).toBe(true);
});
