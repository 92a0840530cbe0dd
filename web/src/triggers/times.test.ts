import { expect, test } from 'vitest';
import { cronOf, cronWords, EVERY, USUAL } from './times';

test('a simple choice is a cron line, and comes back in words', () => {
  const told = [
    { ...USUAL },
    { ...USUAL, often: 'minutes' as const },
    { ...USUAL, often: 'minutes' as const, minutes: 1 },
    { ...USUAL, often: 'hourly' as const, at: '00:05' },
    { ...USUAL, often: 'weekdays' as const, at: '18:30' },
    { ...USUAL, often: 'weekly' as const, weekday: 0 },
    { ...USUAL, often: 'cron' as const, cron: ' 1 2 3 4 5 ' },
    { ...USUAL, at: '' },
  ].map((when) => [cronOf(when), cronWords(cronOf(when))]);
  expect(told).toEqual([
    ['0 9 * * *', 'every day at 09:00'],
    ['*/15 * * * *', 'every 15 minutes'],
    ['* * * * *', 'every minute'],
    ['5 * * * *', 'every hour at minute 5'],
    ['30 18 * * 1-5', 'Monday to Friday at 18:30'],
    ['0 9 * * 0', 'every Sunday at 09:00'],
    ['1 2 3 4 5', '1 2 3 4 5'],
    ['', ''],
  ]);
  expect(EVERY.every((minutes) => 60 % minutes === 0)).toBe(true);
});
